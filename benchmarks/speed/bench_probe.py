"""Speed of seven learning rates on one forward pass, against one rate and seven trainings.

    python -m benchmarks.speed.bench_probe

Each way runs the full training on the same random crops of the same images, in one process, in
turn. Processor time is compared, and the heads trained together with those trained alone.
"""

import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import torch

from benchmarks.speed.command import run_benchmark
from transfer.backbone import InputFormat, random_backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.synthetic.generate import generate
from transfer.frozen.linear_heads import train_heads
from transfer.frozen.probe_training import ProbeTraining
from transfer.tasks.linear_transfer import RATES


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    arch: str = "resnet18"
    crop_px: int = 96
    dataset: str = "cars"
    batch_size: int = 64
    steps: int = 12
    """Optimizer steps of each training."""
    rounds: int = 3
    """Number of times that each way is timed."""


def run(settings: Settings) -> None:
    """Print the ratios and the largest difference of weights."""
    form = InputFormat(size_px=settings.crop_px)
    backbone = random_backbone(arch=settings.arch, stem="imagenet", seed=0, input=form)
    training = ProbeTraining(
        learning_rates=RATES,
        batch_size=settings.batch_size,
        steps=settings.steps,
        crop_px=settings.crop_px,
    )
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        generate(data, keys=[settings.dataset])
        images = open_split(settings.dataset, data, "train")

        def timed(rates: tuple[float, ...], name: str) -> tuple[float, torch.Tensor]:
            work = Path(folder) / name
            start = time.process_time()
            heads = train_heads(backbone, images, replace(training, learning_rates=rates), 0, work)
            return time.process_time() - start, heads.weight

        timed(RATES[:1], "warm-up")
        together, one, separate, gaps = [], [], [], []
        for turn in range(settings.rounds):
            seconds, shared = timed(RATES, f"{turn}-all")
            together.append(seconds)
            alone = [timed((rate,), f"{turn}-{rate}") for rate in RATES]
            one.append(median(seconds for seconds, _ in alone))
            separate.append(sum(seconds for seconds, _ in alone))
            scale = max(float(weight.abs().max()) for _, weight in alone)
            gaps += [
                float((shared[index] - weight[0]).abs().max()) / scale
                for index, (_, weight) in enumerate(alone)
            ]
    images_seen = settings.steps * settings.batch_size
    print(
        f"{settings.arch} at {settings.crop_px} px, {images_seen} crops, {settings.rounds} rounds"
    )
    print(f"processor time: seven rates together {median(together):.2f} s")
    print(f"  against one rate        {_ratio(together, one):.3f} times")
    print(f"  against seven trainings {1 / _ratio(together, separate):.2f} times less")
    print(f"largest difference of weights {max(gaps):.1e} of the largest weight")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", file=sys.stderr)


def _ratio(one: list[float], other: list[float]) -> float:
    """Return the median over the rounds of the ratio of times in s."""
    return median(a / b for a, b in zip(one, other, strict=True))


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
