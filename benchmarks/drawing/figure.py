"""Figures: the content of a picture, without the library that draws it, and what it is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pages.records import Model, Result, model_of


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
class PublishedPoint:
    """Number that the paper states."""

    label: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class LinePanel:
    """Lines over a common x axis."""

    title: str = ""
    x_label: str
    y_label: str
    lines: tuple[Line, ...] = ()
    levels: tuple[Line, ...] = ()
    """Results without a value on the x axis: lines of a single point, drawn horizontally."""
    published: tuple[PublishedPoint, ...] = ()
    log_x: bool = False
    marked: bool = True
    """Each point has a marker; curves of many points have none."""


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Counts of images between edges."""

    label: str
    edges: tuple[float, ...]
    """Edges of the bins, one more than counts."""
    counts: tuple[float, ...]
    mean: float


@dataclass(frozen=True, kw_only=True)
class HistogramPanel:
    """Histograms over a common x axis, each as a share of its images."""

    title: str = ""
    x_label: str
    histograms: tuple[Histogram, ...]


@dataclass(frozen=True, kw_only=True)
class BarPanel:
    """Shares of several parts, one bar each."""

    title: str = ""
    y_label: str
    names: tuple[str, ...]
    shares: tuple[Point, ...]
    """One share from 0 to 1 for each name; x is its place."""
    highest: float
    """Largest share of all panels, which have one scale."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One image of a grid."""

    pixels: Any = field(repr=False)
    """Array (H, W, 3), unsigned bytes."""
    label: str = ""
    agrees: bool | None = None
    """Label is that of its row's query; None for the query itself."""


@dataclass(frozen=True, kw_only=True)
class GridPanel:
    """Rows of images, the query first."""

    title: str = ""
    rows: tuple[tuple[Tile, ...], ...]

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """Return all images."""
        return tuple(tile for row in self.rows for tile in row)


@dataclass(frozen=True, kw_only=True)
class ExamplePanel:
    """Images, each with its shares side by side in one bar, in the colors of a bar panel."""

    title: str = ""
    tiles: tuple[Tile, ...]
    shares: tuple[tuple[float, ...], ...]
    """Shares of each image; they add up to 1."""


Panel = LinePanel | HistogramPanel | BarPanel | GridPanel | ExamplePanel


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture: its panels, its caption, and its numbers."""

    file_name: str
    """File name without suffix, such as jcl_figure2a."""
    title: str
    panels: tuple[Panel, ...]
    """Panels in rows of `columns`."""
    columns: int
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
    def model(self) -> Model:
        """Return the run's backbone as a record describes it."""
        settings = self.made_by["settings"]
        names = {"arch": settings.get("arch", ""), "stem": settings.get("stem", "")}
        return model_of({"name": self.name, "sha256": "", **names, "made_by": self.made_by})


@dataclass(frozen=True, kw_only=True)
class Material:
    """Everything that figures are made of."""

    results: tuple[Result, ...] = ()
    snapshots: tuple[Result, ...] = ()
    logs: tuple[TrainingLog, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Pictures that a figure draws from the material, and problems of the rest."""

    pictures: tuple[Picture, ...] = ()
    """A picture for each kind of material, that of the paper's runs first."""
    problems: tuple[str, ...] = ()
    """Sentences on material of the figure that cannot be drawn: what it lacks, what to do."""


@dataclass(frozen=True, kw_only=True)
class Figure:
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

    @property
    def labels(self) -> Sequence[str]:
        """Return the labels of the lines that the paper shows, if a caption names absent ones."""
        return ()

    def is_published(self, one: Any) -> bool:
        """Return whether a result, or a log of a figure of logs, is one of the paper's."""
        raise NotImplementedError

    def draw(self, material: Material) -> Drawn:
        """Return the pictures for which there is material."""
        raise NotImplementedError

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands that make what the paper's figure still lacks; empty if nothing."""
        raise NotImplementedError
