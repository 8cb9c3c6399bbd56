"""Figures: the content of a picture, without the library that draws it, and what it is made of."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.results.records import Run, backbone_facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Point:
    """Mean of the runs at one value of x."""

    x: float
    y: float
    spread: float | None = None
    """Standard deviation over the runs; None for a single run."""
    num_runs: int = 1


@dataclass(frozen=True, kw_only=True)
class Line:
    """Points of one method or run, in the order of x."""

    label: str
    points: tuple[Point, ...]
    point_labels: tuple[str, ...] = ()
    """Labels beside the points, in place of one at the line's end."""


@dataclass(frozen=True, kw_only=True)
class Panel(ABC):
    """One part of a picture, which draws itself."""

    title: str = ""

    @property
    def height_in(self) -> float:
        """Height in inches, with the texts around the axes."""
        return 2.6

    @abstractmethod
    def draw(self, axes: "Axes") -> None:
        """Draw on axes of matplotlib."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture: its panels, its caption, and its numbers."""

    file_name: str
    """File name without suffix, such as jcl_figure2a."""
    title: str
    panels: tuple[Panel, ...]
    caption: tuple[str, ...]
    """Sentences on data, schedule, runs and departures."""
    header: tuple[str, ...]
    """Header of the CSV file."""
    rows: tuple[tuple[str, ...], ...]
    exact: bool = False
    """All results are those of the paper's recipes under its protocol."""


@dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """Metrics of one pre-training run over its epochs."""

    name: str
    made_by: dict[str, Any]
    """Origin, as the backbone file of the run holds it."""
    lines: tuple[dict[str, float], ...]
    """Metrics by name, with the epoch at which they were written."""

    @property
    def run(self) -> Run:
        """Return the facts on the run's backbone, as a row without a result."""
        settings = self.made_by["settings"]
        names = {"arch": settings.get("arch", ""), "stem": settings.get("stem", "")}
        facts = backbone_facts({"name": self.name, "sha256": "", **names, "made_by": self.made_by})
        cell = {"task": "", "protocol": "", "schedule": "", "seed": 0}
        return Run(**facts | cell, primary_metric="", heading="")


@dataclass(frozen=True, kw_only=True)
class Material:
    """Everything that figures are made of."""

    results: tuple[Run, ...] = ()
    snapshots: tuple[Run, ...] = ()
    logs: tuple[TrainingLog, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Pictures that a figure draws from the material, and problems of the rest."""

    pictures: tuple[Picture, ...] = ()
    """A picture for each kind of material, that of the paper's runs first."""
    problems: tuple[str, ...] = ()
    """Sentences on material of the figure that cannot be drawn: what it lacks, what to do."""


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """One figure of a paper; each kind of figure draws it in its own way."""

    id: str
    """Paper and figure, such as jcl/fig2a."""
    what: str
    """Content of the figure, a noun phrase."""
    remarks: tuple[str, ...] = ()
    """Sentences for the caption on how the drawing differs from the printed one."""

    @property
    def file_name(self) -> str:
        """File name without suffix, such as jcl_figure2a."""
        return self.id.replace("/fig", "_figure")

    @abstractmethod
    def is_published(self, one: Any) -> bool:
        """Return whether a result, or a log of a figure of logs, is one of the paper's."""

    @abstractmethod
    def draw(self, material: Material) -> Drawn:
        """Return the pictures for which there is material."""

    @abstractmethod
    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipes, or tasks of one, that the paper's figure still lacks."""
