"""Checks of batch norms over several processes: GPUs joined by nccl, or two CPUs by gloo.

Started by torchrun as `python -m transfer.checks.processes FOLDER`, each process computes its share
of a batch and stores it; the check compares all shares with one process and the whole batch.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from transfer.checks.comparison import Differences, relative_difference, roundings
from transfer.checks.report import Facts, NotCheckedError, Place
from transfer.finetuning.norms import NaiveSyncBatchNorm
from transfer.running.processes import process_group
from transfer.running.stages import load_stage, save_stage

CHANNELS, IMAGES_EACH, SIDE = 6, 4, 5
MOST_SECONDS = {"cuda": 90, "cpu": 400}
"""Time after which processes count as stuck; those of a busy CPU start slowly."""
ERROR = re.compile(r"^(?:\[rank\d+\]: ?)?(\w+(?:\.\w+)*Error\b.*)", re.MULTILINE)
"""Line of an exception in the output of a process that torchrun started."""
KINDS = {"SyncBN": nn.SyncBatchNorm, "naiveSyncBN": NaiveSyncBatchNorm}


def check_norm(kind: str, place: Place) -> Facts:
    """Compare a norm over several processes with plain batch norm over the whole batch in one.

    NotCheckedError with one GPU, and for torch's own synchronized norm on a CPU.
    """
    count = torch.cuda.device_count() if place.device == "cuda" else 2
    if count < 2:
        raise NotCheckedError("one GPU")
    if kind == "SyncBN" and place.device == "cpu":
        raise NotCheckedError("needs CUDA: torch's synchronized batch norm runs on GPUs only")
    folder = place.folder / f"processes-{kind}"
    start_processes(count, kind, folder, MOST_SECONDS[place.device])
    shares = [load_stage(folder / f"{rank}.stage") for rank in range(count)]
    found = [share for share in shares if share is not None]
    if len(found) < count:
        raise RuntimeError(f"{count - len(found)} of {count} processes stored no share")
    return compare(kind, found)


def compare(kind: str, shares: list[dict[str, Tensor]]) -> Facts:
    """Compare the shares of all processes with one process; float64, up to sums in other order.

    A share: outputs and input gradients (n, C, H, W), gradients of weight and bias (C,).
    """
    differences = Differences()
    expected = compute(nn.BatchNorm2d(CHANNELS).double(), range(len(shares)), torch.device("cpu"))
    # sums over all values, then a difference of their squares
    bound = roundings(torch.float64, operations=300)
    for name in ("outputs", "input gradients"):
        found = torch.cat([share[name] for share in shares])
        differences.add(name, relative_difference(found, expected[name]), bound)
    for name in ("weight gradient", "bias gradient"):
        found = torch.stack([share[name] for share in shares]).sum(dim=0)
        differences.add(name, relative_difference(found, expected[name]), bound)
    values = len(shares) * IMAGES_EACH * SIDE**2
    # the naive norm's running variance is biased
    factor = (values - 1) / values if kind == "naiveSyncBN" else 1.0
    momentum = 0.1
    variance = 1 - momentum + factor * (expected["running variance"] - (1 - momentum))
    for rank, share in enumerate(shares):
        mean = relative_difference(share["running mean"], expected["running mean"])
        differences.add(f"running mean of process {rank}", mean, bound)
        apart = relative_difference(share["running variance"], variance)
        differences.add(f"running variance of process {rank}", apart, bound)
    return differences.checked()


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


def start_processes(count: int, kind: str, folder: Path, most_seconds: float) -> None:
    """Run this module in several processes; RuntimeError with the first error if one fails.

    TimeoutExpired if they take too long; nothing of them goes on.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(count), "-m", "transfer.checks.processes"]
    done = subprocess.run(
        [*command, kind, str(folder)],
        capture_output=True,
        text=True,
        timeout=most_seconds,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    sys.stderr.write(done.stderr)
    if done.returncode:
        raise RuntimeError(
            f"{count} processes ended with {done.returncode}: {first_error(done.stderr)}"
        )


def first_error(text: str) -> str:
    """Return the first exception in what processes wrote to stderr."""
    found = ERROR.search(text)
    return found[1].strip() if found else "no error was printed"


def main(kind: str, folder: Path) -> None:
    """Compute and store the share of this process."""
    with process_group() as process:
        norm = KINDS[kind](CHANNELS).double().to(process.device)
        parts = range(process.rank, process.rank + 1)
        save_stage(folder / f"{process.rank}.stage", compute(norm, parts, process.device))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
    # torch 2.15 may keep threads of gloo that abort the interpreter's end
    sys.stderr.flush()
    os._exit(0)
