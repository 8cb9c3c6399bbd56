"""Speed of pre-training: whole steps, parts of losses, and views.

python -m pretrain.speed.benchmark [--recipe jcl/cifar10] [--data DIR] [--photographs DIR]

The two sides of a ratio run in turns in this process. Processor time is measured on a CPU, elapsed
time on a GPU. A ratio above 1 is in favor of this code. Without folders the images are noise.
"""

import sys
import tempfile
from pathlib import Path

import tyro

from pretrain.ranges import OptionError, check_ranges
from pretrain.speed.options import SPEED_RANGES, Benchmark


def run(settings: Benchmark) -> None:
    """Print one measurement per line."""
    import torch  # here and not above: --help needs neither torch nor what imports it

    from pretrain.running.launch import join_processes
    from pretrain.speed import bench_losses, bench_views
    from pretrain.speed.bench_steps import jcl_step_report, step_report, write_noise_images

    with join_processes(settings.device) as process:
        device = process.device
    rounds, size = settings.num_rounds, settings.num_queries
    print(f"device {device}, {torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as folder:
        data = settings.data or write_noise_images(Path(folder) / "images", 4 * settings.batch_size)
        print(step_report(settings, data, Path(folder)))
        print(jcl_step_report(settings, data, Path(folder)))
    print(bench_losses.jcl_report(size, settings.queue_size, rounds, device))
    print(bench_losses.prior_report(size // 2, rounds, device))
    print(bench_losses.trace_report(size, settings.embedding_dim, rounds, device))
    print(bench_losses.momentum_report(rounds, device))
    bench_views.run(bench_views.Benchmark(data=settings.photographs, rounds=rounds))


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    settings = tyro.cli(Benchmark, args=words, description=__doc__)
    try:
        check_ranges(settings, SPEED_RANGES)
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run(settings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
