"""Speed of pre-training: whole steps, parts of losses, and views.

python -m pretrain.benchmark [--recipe jcl/cifar10] [--data DIR] [--photographs DIR]
torchrun --nproc-per-node 2 -m pretrain.benchmark

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
    from pretrain.speed.bench_peers import peer_reports
    from pretrain.speed.bench_steps import jcl_step_report, step_report, write_noise_images

    with join_processes(settings.device) as process, tempfile.TemporaryDirectory() as name:
        device, folder = process.device, Path(name)

        def show(line: str) -> None:
            if process.is_main:
                print(line, flush=True)

        show(f"{process.num_processes} x {device.type}, {torch.get_num_threads()} threads")
        # each process writes the same noise into a folder of its own
        data = settings.data or write_noise_images(folder / "images", 4 * settings.batch_size)
        show(step_report(settings, data, folder, process))
        show(jcl_step_report(settings, data, folder, process))
        for line in peer_reports(settings, data, folder, process):
            show(line)
    if process.is_main:
        rounds, size = settings.num_rounds, settings.num_queries
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
