"""Checks that a network holds a file's weights: each tensor is set once, is finite and matters.

Names and shapes are compared before. Settings that tensors do not show are reported as assumed.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transfer.encoders.architectures import BackboneError
from transfer.encoders.naming import brief

CASTABLE = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
MAX_REPEATED_BYTES = 2**29
"""Most bytes by which a tensor may exceed its stored values, which it then repeats."""
MIN_RESPONSE = 8 * torch.finfo(torch.float32).eps
"""Smallest difference between the features of two images, relative to the largest feature."""


def plain_floats(name: str, stored: Tensor) -> Tensor:
    """Return a float32 copy of the same shape; BackboneError unless all values are finite."""
    if stored.dtype not in CASTABLE:
        raise BackboneError(
            f"{name} holds {stored.dtype}; expected floating-point weights: undo the quantization"
        )
    num_bytes = stored.numel() * stored.itemsize
    if num_bytes > MAX_REPEATED_BYTES + stored.untyped_storage().nbytes():
        raise BackboneError(
            f"{name} repeats stored values and would take {num_bytes:,} bytes; save its .clone()"
        )
    tensor = stored.to(torch.float32).clone(memory_format=torch.contiguous_format)
    # the sum is a fast test: NaN and infinity propagate; if only the sum overflows, the count is 0
    if not tensor.sum().isfinite() and (num_bad := int((~tensor.isfinite()).sum())):
        raise BackboneError(
            f"{name} holds {num_bad} values of {tensor.numel()} that are NaN or infinite; the "
            f"training diverged: take an earlier checkpoint"
        )
    return tensor


def fill(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Set every tensor of a network to the one of its name; tensors on meta are replaced by it.

    BackboneError for other names or shapes, or if the network changes a value as it loads it.
    """
    on_meta = any(tensor.is_meta for tensor in network.state_dict().values())
    try:
        network.load_state_dict(weights, assign=on_meta)
    except RuntimeError as error:
        raise BackboneError(f"{' '.join(str(error).split())}; export it again") from error
    loaded = network.state_dict()
    changed = [n for n, t in loaded.items() if not (t.is_meta or torch.equal(t, weights[n]))]
    if changed:
        raise BackboneError(f"the network changes {brief(changed)} as it loads them")


def check_response(features: Tensor) -> None:
    """Raise BackboneError unless the features (2, C) of two images are finite and differ."""
    if num_bad := int((~features.isfinite()).sum()):
        raise BackboneError(
            f"{num_bad} of {features.numel()} features on fixed images are not finite; expected a "
            f"trained network"
        )
    first, second = features
    if (first - second).abs().max() <= MIN_RESPONSE * features.abs().max():
        raise BackboneError(
            f"the features do not depend on the image, all are within {features.abs().max():.3g}: "
            f"the weights are zero or the training collapsed; take an earlier checkpoint"
        )


def fixed_images(size_px: int = 64) -> Tensor:
    """Return normalized noise (2, 3, size_px, size_px), the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, size_px, size_px, generator=generator, dtype=torch.float32)
