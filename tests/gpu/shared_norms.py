"""Parts of batch norms over several processes, as each process computes its share.

test_norms.py starts this module by torchrun; each process stores its share.
"""

import os
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from pretrain.running.processes import process_group
from transfer.finetuning.norms import NaiveSyncBatchNorm
from transfer.running.stages import save_stage

CHANNELS, IMAGES_EACH, SIDE = 6, 4, 5
KINDS = {"SyncBN": nn.SyncBatchNorm, "naiveSyncBN": NaiveSyncBatchNorm}


def kinds_on(device: str) -> list[str]:
    """Return the norms that a device has: torch's own synchronized one runs on GPUs only."""
    return [kind for kind in KINDS if kind != "SyncBN" or device == "cuda"]


def compute(norm: nn.Module, parts: range, device: torch.device) -> dict[str, Tensor]:
    """Return what a norm makes of these parts of the batch, with gradients, on the CPU."""
    generator = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) + 0.5)
    drawn = [
        torch.randn(2, IMAGES_EACH, CHANNELS, SIDE, SIDE, generator=generator).double()
        for _ in range(parts.stop)
    ]
    maps, goals = torch.cat([drawn[part] for part in parts], dim=1).to(device)
    maps = (3 * maps + 1).requires_grad_()
    outputs = norm.train()(maps)
    (outputs * goals).sum().backward()
    weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")
    tensors = {
        "outputs": outputs,
        "input gradients": maps.grad,
        "weight gradient": weight.grad,
        "bias gradient": bias.grad,
        "running mean": norm.get_buffer("running_mean"),
        "running variance": norm.get_buffer("running_var"),
    }
    return {
        name: values.detach().cpu().contiguous()
        for name, values in tensors.items()
        if values is not None
    }


def main(device: str, folder: Path) -> None:
    """Compute and store the shares of this process."""
    with process_group() as process:
        for kind in kinds_on(device):
            norm = KINDS[kind](CHANNELS).double().to(process.device)
            parts = range(process.rank, process.rank + 1)
            share = compute(norm, parts, process.device)
            save_stage(folder / f"{kind}-{process.rank}.stage", share)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    # torch 2.15 may keep threads of gloo that abort the interpreter's end
    sys.stderr.flush()
    os._exit(0)
