"""Cells of a request: their task keys, the settings that they share, one cell for each seed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.planning.suites import suites
from transfer.backbone import Backbone
from transfer.cells.request import Cell, CellSettings
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.precision import RequestedPrecision
from transfer.running.nearest import nearest
from transfer.running.option_ranges import Range, require_in_range
from transfer.running.schedule import length_fraction
from transfer.tasks import default_tasks, reading_of, task_of


class SharedSettings(Protocol):
    """Options of a command line that all of its cells share."""

    @property
    def data(self) -> Path:
        """Folder of all data sets."""

    @property
    def results(self) -> Path:
        """Folder of records and tables."""

    @property
    def runs(self) -> Path:
        """Folder of caches and unfinished work."""

    @property
    def schedule(self) -> str:
        """Training length by name, or a share of the paper's."""

    @property
    def tolerate(self) -> int:
        """Number of broken images that a data set may have."""

    @property
    def features_in(self) -> RequestedPrecision:
        """Arithmetic of frozen networks."""

    @property
    def image_memory_gb(self) -> float | None:
        """Memory per process for decoded training images; None: a share of the free memory."""


def settings_of(
    settings: SharedSettings, training: TrainingOptions | None = None, *, snapshots: bool = False
) -> CellSettings:
    """Return the settings as cells have them; ValueError for an unknown schedule."""
    length_fraction(settings.schedule)
    return CellSettings(
        data=settings.data,
        results=settings.results,
        snapshots=snapshots,
        runs=settings.runs,
        schedule=settings.schedule,
        tolerated=settings.tolerate,
        training=training or TrainingOptions(),
        features_in=settings.features_in,
        image_memory_gb=settings.image_memory_gb,
    )


def cells_of(
    backbones: Iterable[Backbone],
    keys: Sequence[str],
    settings: CellSettings,
    seeds: Sequence[int] = (0,),
) -> list[Cell]:
    """Return a cell for each backbone, task key and seed, in this order."""
    return [
        Cell(key=key, backbone=backbone, seed=seed, settings=settings)
        for backbone in backbones
        for key in keys
        for seed in seeds
    ]


def split_words(words: str) -> list[str]:
    """Return the words between commas, without spaces and without empty ones."""
    return [word.strip() for word in words.split(",") if word.strip()]


def task_keys(tasks: str, suite: str) -> list[str]:
    """Return the keys of TASKS that the request names; ValueError for an unknown task or paper."""
    wanted = split_words(tasks)
    if suite:
        known = suites()
        if suite not in known:
            raise ValueError(f"no suite {suite!r}; did you mean {nearest(suite, known)}?")
        wanted += known[suite]
    if not wanted:
        return default_tasks()
    for word in wanted:
        if not _keys_of(word):
            task_of(word)
    return list(dict.fromkeys(key for word in wanted for key in _keys_of(word) or [word]))


def _keys_of(task: str) -> list[str]:
    """Return the keys of all readings of a task id, or the key itself; empty if unknown."""
    return [key for key in default_tasks() if key == task or reading_of(key)[0] == task]


def split_numbers(words: str, option: str, example: str, allowed: Range) -> list[int]:
    """Return the numbers between commas; ValueError for other words or one out of range."""
    try:
        numbers = [int(word) for word in words.split(",")]
    except ValueError as error:
        raise ValueError(f"{option} {words!r}: expected numbers such as {example}") from error
    require_in_range(option, numbers, allowed)
    return numbers
