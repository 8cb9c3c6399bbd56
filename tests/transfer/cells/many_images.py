"""So many small images that loader processes start without being asked for."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

from transfer.datasets.catalog import DATASETS
from transfer.datasets.cifar import LAYOUTS, write_small
from transfer.datasets.info import SmallVersion
from transfer.datasets.synthetic.generate import generate
from transfer.datasets.synthetic.labeled import PerClass
from transfer.frozen.extraction import num_workers

PER_CLASS = 350


def generate_many(data: Path, per_class: int = PER_CLASS) -> None:
    """Write a CIFAR-10 with enough images for loader processes.

    It has 6 * (per_class + 8) training images, usually 2,148, and 120 test images. per_class:
    images of train.
    """
    many = PerClass(classes=6, train=per_class, val=8, test=20)
    assert num_workers(many.classes * many.trainval)
    info = DATASETS["cifar10"]
    small = SmallVersion(sizes=many.sizes, write=partial(write_small, LAYOUTS["cifar10"], many))
    with patch.dict(DATASETS, {"cifar10": replace(info, small=small)}):
        generate(data, keys=("cifar10",))
