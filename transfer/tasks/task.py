"""Interface of a task, and its defaults.

A task is a frozen dataclass in a file of its own. `Task` lists everything that the rest of the
suite uses; `TaskDefaults` implements it for a task on frozen features in one process. No code
outside of a task's file tests for its class.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from transfer.backbone import Backbone
from transfer.finetuning.options import TrainingOptions
from transfer.finetuning.schedule import TrainingSchedule
from transfer.running.folders import Folders
from transfer.running.measured_rates import ASSUMED, Rates

if TYPE_CHECKING:
    from transfer.galleries.tile import Tile

AnyTask = TypeVar("AnyTask")


@dataclass(frozen=True)
class PlannedTask(Generic[AnyTask]):
    """A task that is going to run."""

    key: str
    task: AnyTask
    seed: int
    gpu_hours: float
    rates: Rates = ASSUMED
    """Measured rates that the hours follow from, as far as there are any."""


@dataclass(frozen=True, kw_only=True)
class TaskDefaults:
    """Defaults of a task that evaluates a frozen backbone in one process."""

    by_default: bool = field(default=True, metadata={"hashed": False, "stored": False})
    """Membership in the tasks that run when none is named."""

    @property
    def needs(self) -> str:
        """Return the key of the task whose trained classifier this one uses; empty for none."""
        return ""

    @property
    def trains_backbone(self) -> bool:
        """Return whether the backbone's weights change."""
        return False

    @property
    def varied_image_sizes(self) -> bool:
        """Return whether a training sees images of many sizes."""
        return False

    @property
    def distributed_training(self) -> TrainingSchedule | None:
        """Return the schedule of a training that divides its batch among GPUs, if it has one."""
        return None

    @property
    def shared_pass(self) -> Hashable | None:
        """Return what tasks have in common whose probes read one stream of crops; None for none."""
        return None

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol as the user's options change it."""
        return self

    def with_data(self, data: Path) -> Self:
        """Return the protocol that the data sets below a folder allow."""
        return self

    def num_processes(self, options: TrainingOptions) -> int:
        """Return in how many processes the task runs."""
        return 1

    def unfit(self, backbone: Backbone) -> str:
        """Return why a backbone cannot do the task; empty if it can."""
        return ""

    def too_few_images(self, data: Path) -> str:
        """Return why the data below a folder have too few images; empty if they have enough."""
        return ""

    def accepts_engine(self, engine: str) -> bool:
        """Return whether a record that this engine made counts as finished."""
        return True

    def extract_together(self, backbones: Sequence[Backbone], folders: Folders) -> bool:
        """Extract features of several backbones in one pass; return False if there is none."""
        return False

    def gallery(self, predictions: Any, folders: Folders) -> "Sequence[Tile]":
        """Return pictures of a few predictions, for people to look at."""
        return []

    def plan_notes(
        self, planned: Sequence[PlannedTask[Self]], options: TrainingOptions, num_gpus: int
    ) -> list[str]:
        """Return what a plan says of its tasks of this class; num_gpus: of this machine."""
        return []


class Task(Protocol):
    """Interface of a task."""

    @property
    def by_default(self) -> bool:
        """Return whether it runs when no task is named."""

    @property
    def protocol(self) -> str:
        """Return name and version of the protocol, such as "lorac-2021/1"."""

    @property
    def engine(self) -> str:
        """Return the name of the library or solver that computes."""

    @property
    def primary_metric(self) -> str:
        """Return the metric that stands for the task where there is room for one."""

    @property
    def heading(self) -> str:
        """Return the part of the overview that shows the task."""

    @property
    def needs(self) -> str:
        """Return the key of the task whose trained classifier this one uses; empty for none."""

    @property
    def trains_backbone(self) -> bool:
        """Return whether the backbone's weights change."""

    @property
    def varied_image_sizes(self) -> bool:
        """Return whether a training sees images of many sizes."""

    @property
    def distributed_training(self) -> TrainingSchedule | None:
        """Return the schedule of a training that divides its batch among GPUs, if it has one."""

    @property
    def shared_pass(self) -> Hashable | None:
        """Return what tasks have in common whose probes read one stream of crops; None for none."""

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the data sets it reads."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule."""

    def for_backbone(self, backbone: Backbone) -> Self:
        """Return the protocol with the backbone's image size and pixel scale."""

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol as the user's options change it."""

    def with_data(self, data: Path) -> Self:
        """Return the protocol that the data sets below a folder allow."""

    def num_processes(self, options: TrainingOptions) -> int:
        """Return in how many processes the task runs."""

    def unfit(self, backbone: Backbone) -> str:
        """Return why a backbone cannot do the task; empty if it can."""

    def too_few_images(self, data: Path) -> str:
        """Return why the data below a folder have too few images; empty if they have enough."""

    def accepts_engine(self, engine: str) -> bool:
        """Return whether a record that this engine made counts as finished."""

    def gpu_hours(self, backbone: Backbone, rates: Rates = ASSUMED) -> float:
        """Return the estimated hours on one GPU, on the published counts of images.

        The backbone's precision is that of its frozen features.
        """

    def plan_notes(
        self, planned: Sequence[PlannedTask[Self]], options: TrainingOptions, num_gpus: int
    ) -> list[str]:
        """Return what a plan says of its tasks of this class; num_gpus: of this machine."""

    def extract_together(self, backbones: Sequence[Backbone], folders: Folders) -> bool:
        """Extract features of several backbones in one pass; return False if there is none."""

    def prepare(self, backbone: Backbone, folders: Folders) -> Any:
        """Touch every file that the run needs; return what `run` works on."""

    def run(self, prepared: Any, folders: Folders, seed: int) -> Any:
        """Return predictions on the test split; may be interrupted and called again."""

    def metrics(self, predictions: Any) -> dict[str, float]:
        """Return metrics in percent, under the names of the paper tables."""

    def details(self, predictions: Any) -> dict[str, object]:
        """Return what the metrics alone do not tell, for the record."""

    def gallery(self, predictions: Any, folders: Folders) -> "Sequence[Tile]":
        """Return pictures of a few predictions, for people to look at."""


def wall_time(planned: Sequence[PlannedTask[Any]], options: TrainingOptions, num_gpus: int) -> str:
    """Return how long tasks take one after another, each on as many GPUs as its batch allows."""
    if not num_gpus and not options.gpus:
        return "this machine has no GPU: its processor will take hundreds of times as long"
    processes = [row.task.num_processes(options) for row in planned]
    hours = sum(row.gpu_hours / n for row, n in zip(planned, processes, strict=True))
    most = max(processes)
    return f"{hours:.1f} hours on {most} GPU{'s' * (most > 1)}"


def mean_of_three(planned: Sequence[PlannedTask[Any]], key: str) -> list[str]:
    """Return the advice to run three seeds of a task whose published number averages three runs."""
    seeds = {row.seed for row in planned if row.key == key}
    if 0 < len(seeds) < 3:
        return [f"{key}: the paper's numbers are means of three runs: --seeds 0,1,2"]
    return []
