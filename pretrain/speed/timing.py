"""The end of a device's work."""

import torch


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished; do nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
