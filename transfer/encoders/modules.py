"""A network of the user, in memory or from a FILE.py: its copy, its checks and its outputs."""

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
    """Return a user's network, which computes features, or tokens or maps for a pooling.

    It is moved to the CPU and cast to float32, in place. maps: function for its maps; if None, they
    are the tokens or maps that it returns.
    """
    return Built(
        network=network.cpu().float(),
        library=f"torch {torch.__version__}",
        unpooled=lambda net, images: _output(net, images, pool=True),
        own=lambda net, images: _output(net, images, pool=False),
        maps=maps or (lambda net, images: as_maps(net(images), net)),
    )


def _output(network: nn.Module, images: Tensor, *, pool: bool) -> Tensor:
    """Return the features (n, C) of a user's network, or tokens or maps to pool.

    BackboneError if the network returns something else.
    """
    output: Any = network(images)
    axes = "tokens (n, T, C) or maps (n, C, H, W)" if pool else "features (n, C)"
    expected = f"for images {tuple(images.shape)}; expected a tensor of floats: {axes}"
    if not isinstance(output, Tensor):
        raise BackboneError(
            f"the network returns {described(output)} {expected}. Wrap the network in a module "
            f"that returns this tensor alone"
        )
    n, *sizes = output.shape or (0,)
    if not output.is_floating_point() or n != len(images) or not sizes or not all(sizes):
        raise BackboneError(f"the network returns {described(output)} {expected}")
    if pool and len(sizes) not in (2, 3):
        raise BackboneError(f"the network returns {described(output)} {expected}; leave out --pool")
    if not pool and len(sizes) != 1:
        raise BackboneError(
            f"the network returns {described(output)} {expected}; say --pool mean or another "
            "pooling"
        )
    return output


def described(value: object) -> str:
    """Return a phrase on what a user's function returned, such as "a tuple of 2: ..."."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    kind = type(value).__name__
    if isinstance(value, Mapping):  # also the outputs of transformers
        parts = ", ".join(f"{key!r}: {described(part)}" for key, part in [*value.items()][:4])
    elif isinstance(value, tuple | list):
        parts = ", ".join(described(part) for part in value[:4])
    else:
        return f"a value of type {kind}"
    return f"a {kind} of {len(value)} ({parts})"


def copy_of(network: nn.Module) -> nn.Module:
    """Return a copy of a user's network on the CPU, in eval mode, without parallel wrappers.

    BackboneError for something else than a network, for parameters without values, and for a
    network that cannot be copied.
    """
    if not isinstance(network, nn.Module):
        raise BackboneError(f"the network is {described(network)}; expected a torch.nn.Module")
    network = unwrapped(network)
    check_values(network)
    try:
        own = copied(network)
    except (AttributeError, RuntimeError, TypeError, PicklingError) as error:
        raise BackboneError(
            f"{type(network).__qualname__} cannot be copied ({type(error).__name__}: "
            f"{str(error).splitlines()[0]}). Give it no attributes but modules, tensors and values"
        ) from error
    for parent in list(own.modules()):
        for name, child in parent.named_children():
            if (inner := unwrapped(child)) is not child:
                setattr(parent, name, inner)
    return own.cpu().eval()


def copied(network: nn.Module) -> nn.Module:
    """Return a copy of a network, also of one whose norms keep computed weights as attributes.

    `torch.nn.utils.weight_norm` and `spectral_norm` do, and torch refuses to copy the graph of
    such a weight. It is computed again in each forward pass, so the copy gets its value.
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
    """Return the network within DataParallel, DistributedDataParallel and torch.compile."""
    while True:
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            network = network.module
        elif isinstance(inner := getattr(network, "_orig_mod", None), nn.Module):
            network = inner
        else:
            return network


def check_values(network: nn.Module) -> None:
    """Raise BackboneError if a parameter or buffer has no plain values in this process."""
    sharded = any(type(part).__name__ == "FullyShardedDataParallel" for part in network.modules())
    for name, tensor in chain(network.named_parameters(), network.named_buffers()):
        reason = ""
        if is_lazy(tensor):
            reason = "has no shape yet: run the network on a batch of images first"
        elif tensor.is_meta:
            reason = "is on the meta device and has no values: load the weights first"
        elif sharded or hasattr(tensor, "full_tensor"):
            reason = "is sharded: gather the full state dict in a network that is not"
        if reason:
            raise BackboneError(f"{name} of {type(network).__qualname__} {reason}")
    for name, value in network.state_dict().items():
        if not isinstance(value, Tensor) or value.is_quantized:
            raise BackboneError(
                f"{name} of {type(network).__qualname__} is {described(value)}; expected a tensor: "
                "give the network before its quantization, and without extra state"
            )
