"""Compilation of a method's networks by torch.compile.

Methods call backbones many times in a step, for views of several sizes and with and without
gradients. The backbones are compiled and the losses are not: these are own Functions in few
operations already.
"""

from collections.abc import Iterator

from torch import nn

from pretrain.method import Method
from pretrain.parts.heads import BranchedResNet


def compile_networks(method: Method, *, backend: str = "inductor") -> None:
    """Compile the backbones of a method, each when it is first called."""
    for module in compiled_modules(method):
        # a graph for each size of views, since symbolic sizes make slower kernels; and a limit of
        # graphs for each module, since beyond it torch would run the rest uncompiled
        module.compile(backend=backend, dynamic=False, isolate_recompiles=True)


def compiled_modules(method: Method) -> Iterator[nn.Module]:
    """Yield the modules that are compiled: backbones, those of momentum encoders included."""
    for module in method.modules():
        # methods call trunk and heads, not the module, so only its stages can be compiled
        if isinstance(module, BranchedResNet):
            yield from (module.layer1, module.layer2, module.layer3, *module.layer4)
        elif isinstance(module, type(method.backbone)):
            yield module
