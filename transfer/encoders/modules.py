"""A user's network, in memory or from FILE.py: copy, checks, outputs."""

import copy
from itertools import chain
from pickle import PicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from transfer.encoders.architectures import BackboneError
from transfer.encoders.pooling import Built, MapsFunction, as_maps


def module_source(network: nn.Module, maps: MapsFunction | None) -> Built:
    """Return a user's network, cast to float32 on the CPU in place.

    The network returns features, or tokens or maps to pool. maps: function that returns its maps;
    if None, the network itself returns tokens or maps.
    """
    return Built(
        network=network.cpu().float(),
        library=f"torch {torch.__version__}",
        unpooled=lambda net, images: _output(net, images, pool=True),
        own_pooling=lambda net, images: _output(net, images, pool=False),
        maps=maps or (lambda net, images: as_maps(net(images), net)),
    )


def _output(network: nn.Module, images: Tensor, *, pool: bool) -> Tensor:
    """Return the features (n, C), or tokens or maps to pool.

    Raises BackboneError if the network returns anything else.
    """
    output: Any = network(images)
    expected, advice = "features (n, C)", "pass --pool mean or another pooling"
    if pool:
        expected, advice = "tokens (n, T, C) or maps (n, C, H, W)", "leave out --pool"
    if (
        not isinstance(output, Tensor)
        or not output.is_floating_point()
        or output.ndim not in ((3, 4) if pool else (2,))
        or len(output) != len(images)
        or not output.numel()
    ):
        raise BackboneError(
            f"the network returns {described(output)} for images {tuple(images.shape)}; expected a "
            f"tensor of floats: {expected}. Wrap it in a module that returns this, or {advice}"
        )
    return output


def described(value: object) -> str:
    """Return the type of a function's output, with shape and dtype of a tensor."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return f"a value of type {type(value).__name__}"


def copy_of(network: nn.Module) -> nn.Module:
    """Return a copy of a user's network on the CPU, in eval mode.

    `torch.nn.utils.weight_norm` and `spectral_norm` keep computed weights as attributes, and torch
    cannot copy the graph of such a weight. The copy gets the value, since each forward pass
    computes the weight again. Raises BackboneError for a network that cannot be copied, and as
    `checked` does.
    """
    network = checked(network)
    computed = {
        id(value): value.detach().clone()
        for module in network.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    try:
        with torch.no_grad():  # copies of TorchScript's parameters would otherwise have a graph
            copied: nn.Module = copy.deepcopy(network, computed)
            return copied.cpu().eval()
    except (AttributeError, RuntimeError, TypeError, PicklingError) as error:
        raise BackboneError(
            f"{type(network).__qualname__} cannot be copied ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}). Its attributes may be modules, tensors and values"
        ) from error


def checked(network: Any) -> nn.Module:
    """Return a user's network without parallel wrappers.

    Raises BackboneError for anything but a network, and if a tensor has no values in this process.
    """
    if not isinstance(network, nn.Module):
        raise BackboneError(f"the network is {described(network)}; expected a torch.nn.Module")
    module = unwrapped(network)
    kind = type(module).__qualname__
    sharded = any(type(m).__name__ == "FullyShardedDataParallel" for m in module.modules())
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta or sharded or hasattr(tensor, "full_tensor"):
            raise BackboneError(
                f"{name} of {kind} has no values in this process: it is lazy, on the meta device "
                "or sharded. Pass a network with all its weights"
            )
    for name, value in module.state_dict().items():
        if not isinstance(value, Tensor) or value.is_quantized:
            raise BackboneError(
                f"{name} of {kind} is {described(value)}; expected a tensor: pass the network "
                "before quantization, and without extra state"
            )
    return module


def unwrapped(network: nn.Module) -> nn.Module:
    """Return the network inside DataParallel, DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network
