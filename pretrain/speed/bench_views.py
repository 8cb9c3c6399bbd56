"""Images/s per core that workers turn into views, against torchvision's usual pipeline.

python -m pretrain.speed.bench_views [--data DIR]

The pipelines read the same files in turns on one thread of this process, and processor time is
measured. A ratio above 1 is in favor of this code. All but "crops alone" end in batches of
normalized views. Without --data the images are noise with the spectrum of photographs.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from pretrain.ranges import OptionError, check_ranges
from pretrain.speed.options import SPEED_RANGES


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure images/s per core of the making of views."""

    data: Path | None = None
    """Folder of training images."""
    num_images: int = 64
    """Images to read, at even distances in the order of the folder's names."""
    rounds: int = 3
    """Passes of each pipeline over all images; medians are reported."""


def run(settings: Benchmark) -> None:
    """Print images/s of each setting."""
    # here and not above: they import torch, and --help needs none
    from pretrain.data.images import find_images
    from pretrain.speed.view_pipelines import SETTINGS, evenly_spaced, measure, write_photographs

    with tempfile.TemporaryDirectory() as folder:
        data = settings.data or write_photographs(Path(folder), settings.num_images)
        images = evenly_spaced(find_images(data, tolerated=sys.maxsize), settings.num_images)
        print(f"{len(images)} images of {data}, one core")
        for setting in SETTINGS:
            print(f"{setting.name}: {measure(setting, images, settings.rounds).report()}")


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
