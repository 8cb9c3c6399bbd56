"""The request for one cell, from any interface or a record.

It is plain data: a frozen dataclass in the process, JSON in files, arguments on a command line.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import tyro

from pretrain.running.command_line import changed_fields, option_of
from pretrain.running.ranges import Count, MemoryGB, Seed
from transfer.datasets.folders import data_folder
from transfer.encoders.options import Checkpoint, Origin
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.feature_cache import RequestedPrecision
from transfer.tasks.task import Task

Options = TypeVar("Options")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Folders and options that all evaluations of a run share."""

    data: Path = field(default_factory=data_folder)
    """Folder that contains all datasets. Default: $DATASETS, or ./datasets."""
    results: Path = Path("results")
    """Folder of records and tables."""
    runs: Path = Path("runs")
    """Folder of caches and unfinished work."""
    schedule: str = "paper"
    """Length of trainings: paper, short (a tenth of paper), smoke (a few steps), or a fraction such
    as 0.02."""
    tolerate: Count = 0
    """Bad images and annotations allowed in each dataset (missing, extra, duplicate or broken)."""
    features_in: Annotated[RequestedPrecision, tyro.conf.arg(name="feature-precision")] = "auto"
    """Precision of frozen networks. auto: bfloat16 on a GPU, otherwise float32."""
    image_memory_gb: Annotated[MemoryGB | None, tyro.conf.arg(name="image-cache-gb")] = None
    """Memory in GB per process to cache the decoded training images of linear probes and
    semi-supervised tasks. If they need more, they are decoded in every epoch. Default: a quarter of
    the free memory, divided by the number of parallel processes."""
    keep_crops: Annotated[bool, tyro.conf.arg(name="cache-crops")] = False
    """Cache the decoded crops for frozen features in --runs, so that later checkpoints need no
    decoding: 0.15 MB per 224 px image, 193 GB for ImageNet."""
    training: Annotated[TrainingOptions, tyro.conf.arg(name="")] = field(
        default_factory=TrainingOptions
    )
    """Options of tasks that train the complete network."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Evaluate one checkpoint on one task."""

    task: Annotated[str, tyro.conf.Positional]
    """Task of `python -m transfer --list`."""
    checkpoint: Annotated[Checkpoint, tyro.conf.arg(name="")]
    """File of the backbone."""
    seed: Seed = 0
    """Seed of weight initialization and random crops."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    """Folders and options."""
    with_weights: tyro.conf.Suppress[bool] = False
    """Train again if the record exists but the classifier's weights, which other tasks use, do
    not."""
    variant: tyro.conf.Suppress[str] = ""
    """Name of an ablation, which the Python API appends to the protocol's."""
    changes: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """Numbers of the ablation that differ from the task's."""
    file_sha256: tyro.conf.Suppress[str] = ""
    """Hash of the checkpoint file at the time of the plan; only in the requests of jobs."""

    def absolute(self) -> "Request":
        """Return the request with absolute paths, for other working folders."""
        checkpoint, settings = self.checkpoint, self.settings
        network = replace(checkpoint.network, encoder=checkpoint.network.absolute_encoder)
        folders = {name: getattr(settings, name).absolute() for name in ("data", "results", "runs")}
        return replace(
            self,
            checkpoint=replace(checkpoint, ckpt=checkpoint.ckpt.absolute(), network=network),
            settings=replace(settings, **folders),
        )


def to_json(options: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values; `from_json` restores it."""
    content: dict[str, Any] = json.loads(json.dumps(asdict(options), default=str))
    return content


def from_json(kind: type[Options], content: Mapping[str, Any]) -> Options:
    """Return the dataclass from its JSON values.

    Fields that only older records have are ignored.
    """
    hints = get_type_hints(kind)
    values = {name: value for name, value in content.items() if name in hints}
    return kind(**{name: _restored(hints[name], value) for name, value in values.items()})


def _restored(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(hint, type):
        return from_json(hint, value)
    if isinstance(value, Mapping):
        return {key: _restored(None, entry) for key, entry in value.items()}
    if isinstance(value, list):
        return tuple(_restored(None, entry) for entry in value)
    return Path(value) if hint is Path else value


NO_OPTIONS = ("snapshot", "origin", "variant", "changes")
"""Fields without a command-line option."""


def command_line_args(options: object) -> list[str]:
    """Return the command-line arguments of a dataclass, without defaults."""
    args: list[str] = []
    for name, value in changed_fields(options).items():
        if name == "task":
            args.append(value)
        elif name not in (*NO_OPTIONS, *vars(Origin())):
            values = value if isinstance(value, tuple) else (value,)
            args += [option_of(name)] if value is True else [option_of(name), *map(str, values)]
    return args


def check_options_are_used(settings: Settings, tasks: Iterable[Task]) -> None:
    """Raise ValueError for an option that none of the tasks supports."""
    of_all_tasks = {"data", "results", "runs", "schedule", "tolerate"}
    supported = of_all_tasks.union(*(task.supported_options for task in tasks))
    if unused := [name for name in changed_fields(settings) if name not in supported]:
        raise ValueError(
            f"{option_of(unused[0])} has no effect on the requested tasks. To see "
            "which tasks use it: python -m transfer TASK --help"
        )
