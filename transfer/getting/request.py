"""The sources behind the names that a user gives: data sets, sources, or the sets of a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transfer.datasets.catalog import DATASETS
from transfer.datasets.info import Source
from transfer.running.row_names import nearest

SUITES: Mapping[str, tuple[str, ...]] = {
    "jcl": ("in1k", "coco17", "coco17_keypoints", "in100"),
    "co2": ("in1k", "in1k_1pct", "in1k_10pct", "voc07", "voc0712", "voc12_seg", "in100"),
    "lorac": (
        *("in1k", "aircraft", "birdsnap", "caltech101", "cars", "cifar10", "cifar100", "dtd"),
        *("flowers", "food", "pets", "places365", "sun397", "in1k_1pct", "in1k_10pct"),
        *("coco17", "coco17_keypoints", "in100"),
    ),
    "uniclr": ("in1k", "cifar10", "cifar100", "in100"),
    "dino": ("in1k",),
    "nnclr": ("in1k", "aircraft", "caltech101", "cifar10", "cifar100", "dtd", "flowers"),
    "ressl": ("in1k",),
    "looc": ("in100", "inat1k", "cub200", "flowers", "objectnet13", "imagenet_c100"),
}
"""Data sets of each paper's tasks. The papers' tasks are known to `benchmarks`, which this room may
not import; a test compares the two."""


@dataclass(frozen=True)
class Wanted:
    """Request of a user."""

    keys: tuple[str, ...]
    """Data sets to check at the end."""
    sources: tuple[Source, ...]
    """Folders to get, each once."""


def all_sources() -> dict[str, Source]:
    """Return every source by its key, in the order of the catalog."""
    return {source.key: source for info in DATASETS.values() for source in info.sources}


def sources_of(keys: Sequence[str]) -> tuple[Source, ...]:
    """Return the sources of data sets, each once."""
    by_key = {source.key: source for key in keys for source in DATASETS[key].sources}
    return tuple(by_key.values())


def wanted(names: Sequence[str], suite: str) -> Wanted:
    """Return the data sets and sources of a request; ValueError for a name that means nothing."""
    if suite and suite not in SUITES:
        raise ValueError(f"--suite {suite}: expected one of {', '.join(SUITES)}")
    available = [key for key, info in DATASETS.items() if info.sources]
    if "all" in names:
        return Wanted(tuple(available), sources_of(available))
    sources = all_sources()
    keys: list[str] = []
    others: list[Source] = []
    for name in (*names, *SUITES.get(suite, ())):
        if name in DATASETS and not DATASETS[name].sources:
            raise ValueError(f"{name} cannot be downloaded: {DATASETS[name].how_to_get}")
        if name in DATASETS:
            keys.append(name)
        elif name in sources:
            others.append(sources[name])
            keys += [key for key in sources[name].checked_as[:1] if key in DATASETS]
        else:
            known = dict.fromkeys((*available, *sources))
            raise ValueError(f"no data set {name!r}; did you mean {nearest(name, known)}?")
    of_keys = {source.key: source for source in (*sources_of(keys), *others)}
    return Wanted(tuple(dict.fromkeys(keys)), tuple(of_keys.values()))
