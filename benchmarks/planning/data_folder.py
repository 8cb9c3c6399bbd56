"""The data folder of a request: what is wrong with it before any file is opened."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError, small_sizes
from transfer.running.folders import data_folder


def require_data_folder(data: Path, keys: Iterable[str]) -> None:
    """Raise DataError unless the folder holds data sets, each of these whole where it is there.

    The folder that is taken where none is named may be absent: the plan says how to get the data.
    """
    if data == data_folder() and not data.exists():
        return
    if not data.is_dir():
        what = "is a file" if data.exists() else "no such folder"
        raise DataError(f"--data {data}: {what}; expected the folder of all data sets")
    if next(data.iterdir(), None) is None:
        raise DataError(
            f"--data {data}: the folder is empty; python -m transfer get-data KEY --data {data} "
            "gets a data set"
        )
    keys = list(dict.fromkeys(keys))
    if problems := [*_misplaced(data, keys), *_incomplete(data, keys)]:
        raise DataError(f"--data {data}: {'; '.join(problems)}")


def _misplaced(data: Path, keys: Iterable[str]) -> Iterator[str]:
    for folder in dict.fromkeys(DATASETS[key].folder for key in keys):
        expected = data / folder
        if expected.parent.name == "VOCdevkit" and not expected.exists():
            for found in (data / expected.name, *data.glob(f"*/{expected.name}")):
                if found.is_dir():
                    yield f"{found} is expected at {expected}"


def _incomplete(data: Path, keys: Iterable[str]) -> Iterator[str]:
    """Yield what the folders of sets of a few files, such as CIFAR's, lack.

    Sets of many files have several layouts, which their readers know; small copies say themselves
    what they hold.
    """
    small = small_sizes(data)
    for key in (key for key in keys if key not in small and DATASETS[key].is_there(data)):
        for source in DATASETS[key].sources:
            root = data / source.folder
            lacking = [part.path for part in source.parts if not (part.optional or part.find(root))]
            few = key in source.checked_as and not any(part.holds for part in source.parts)
            if root.is_dir() and lacking and few:
                yield f"{root} lacks {', '.join(lacking)}; get-data {source.key} completes it"
