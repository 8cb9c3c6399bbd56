"""Copies to the device of what the host has drawn."""

import torch
from torch import Tensor


def upload(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows of any shape on a device; the host does not wait for the device's work."""
    # a copy to a GPU from memory that is not pinned may first wait for all work before it
    return (rows.pin_memory() if device.type == "cuda" else rows).to(device, non_blocking=True)
