"""A user's network, in memory or from FILE.py: copy, checks, outputs."""

import copy
from collections.abc import Mapping
from itertools import chain
from pickle import PicklingError
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from transfer.encoders.architectures import BackboneError
from transfer.encoders.pooling import Built, MapsFunction, as_maps


def module_source(network: nn.Module, maps: MapsFunction | None = None) -> Built:
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

    BackboneError if the network returns anything else.
    """
    output: Any = network(images)
    axes = "tokens (n, T, C) or maps (n, C, H, W)" if pool else "features (n, C)"
    expected = f"for images {tuple(images.shape)}; expected a tensor of floats: {axes}"
    if not isinstance(output, Tensor):
        raise BackboneError(
            f"the network returns {described(output)} {expected}. Wrap the network in a module "
            f"that returns only this tensor"
        )
    n, *sizes = output.shape or (0,)
    if not output.is_floating_point() or n != len(images) or not sizes or not all(sizes):
        raise BackboneError(f"the network returns {described(output)} {expected}")
    if pool and len(sizes) not in (2, 3):
        raise BackboneError(f"the network returns {described(output)} {expected}; leave out --pool")
    if not pool and len(sizes) != 1:
        raise BackboneError(
            f"the network returns {described(output)} {expected}; pass --pool mean or another "
            "pooling"
        )
    return output


def described(value: object) -> str:
    """Describe the output of a user's function: "a tuple of 2: ..."."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    class_name = type(value).__name__
    if isinstance(value, Mapping):  # also the outputs of transformers
        items = ", ".join(f"{key!r}: {described(item)}" for key, item in [*value.items()][:4])
    elif isinstance(value, tuple | list):
        items = ", ".join(described(item) for item in value[:4])
    else:
        return f"a value of type {class_name}"
    return f"a {class_name} of {len(value)} ({items})"


def copy_of(network: nn.Module) -> nn.Module:
    """Return a copy of a user's network on the CPU, in eval mode.

    Parallel wrappers are removed. BackboneError for anything but a network, for parameters without
    values, and for a network that cannot be copied.
    """
    if not isinstance(network, nn.Module):
        raise BackboneError(f"the network is {described(network)}; expected a torch.nn.Module")
    network = unwrapped(network)
    check_values(network)
    try:
        result = copied(network)
    except (AttributeError, RuntimeError, TypeError, PicklingError) as error:
        raise BackboneError(
            f"{type(network).__qualname__} cannot be copied ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}). Its attributes may be modules, tensors and values"
        ) from error
    for parent in list(result.modules()):
        for name, child in parent.named_children():
            if (inner_module := unwrapped(child)) is not child:
                setattr(parent, name, inner_module)
    return result.cpu().eval()


def copied(network: nn.Module) -> nn.Module:
    """Return a copy of a network, including networks with computed weights.

    `torch.nn.utils.weight_norm` and `spectral_norm` keep computed weights as attributes, and torch
    cannot copy the graph of such a weight. The copy gets the value, since each forward pass
    computes the weight again.
    """
    computed = {
        id(value): value.detach().clone()
        for module in network.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    with torch.no_grad():  # copies of TorchScript's parameters would otherwise have a graph
        return copy.deepcopy(network, computed)


def unwrapped(network: nn.Module) -> nn.Module:
    """Return the network inside DataParallel, DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network


def check_values(network: nn.Module) -> None:
    """Raise BackboneError if a tensor has no values in this process."""
    sharded = any(
        type(module).__name__ == "FullyShardedDataParallel" for module in network.modules()
    )
    for name, tensor in chain(network.named_parameters(), network.named_buffers()):
        reason = ""
        if is_lazy(tensor):
            reason = "has no shape yet: run the network on a batch of images first"
        elif tensor.is_meta:
            reason = "is on the meta device and has no values: load the weights first"
        elif sharded or hasattr(tensor, "full_tensor"):
            reason = "is sharded: load the full state dict into a network that is not sharded"
        if reason:
            raise BackboneError(f"{name} of {type(network).__qualname__} {reason}")
    for name, value in network.state_dict().items():
        if not isinstance(value, Tensor) or value.is_quantized:
            raise BackboneError(
                f"{name} of {type(network).__qualname__} is {described(value)}; expected a tensor: "
                "pass the network before quantization, and without extra state"
            )
