"""The arithmetic of the networks in pre-training; that of losses is in `parts.losses`."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16"]
"""Requested arithmetic; auto: bfloat16 on GPUs, float32 on CPUs."""


def network_dtype(precision: Precision, device_type: str) -> "torch.dtype":
    """Return the type of the networks' matrix products on a device type, cpu or cuda."""
    import torch  # not above: --help and --list need none

    if precision == "auto":
        return torch.bfloat16 if device_type == "cuda" else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def tf32_convolutions(precision: Precision, device_type: str) -> bool:
    """Return whether float32 convolutions run in TF32, with 10 bits of mantissa.

    PyTorch allows it for convolutions, not for other products; GPUs have it since Ampere.
    """
    import torch

    if device_type != "cuda" or network_dtype(precision, device_type) != torch.float32:
        return False
    return torch.backends.cudnn.allow_tf32 and torch.cuda.get_device_capability() >= (8, 0)
