"""Panels that several figures show: lines over one axis, and bars."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import Line, Panel, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is too light on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
GRAY = "#595959"
MOST_MARKED = 30
"""Most points of a line whose points have markers."""


def color_of(place: int) -> str:
    """Return the color of a line, a bar or a histogram by its place."""
    return COLORS[place % len(COLORS)]


@dataclass(frozen=True, kw_only=True)
class PublishedPoint:
    """Number that the paper states."""

    label: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class LinePanel(Panel):
    """Lines over a common x axis."""

    x_label: str
    y_label: str
    lines: tuple[Line, ...] = ()
    levels: tuple[Line, ...] = ()
    """Results without a value on the x axis: lines of a single point, drawn horizontally."""
    published: tuple[PublishedPoint, ...] = ()
    log_x: bool = False

    def draw(self, axes: "Axes") -> None:
        """Draw the lines with their deviations, and name them if there are several."""
        for place, line in enumerate(self.lines):
            _draw_line(axes, line, place)
        for place, level in enumerate(self.levels):
            y, spread = level.points[0].y, level.points[0].spread
            dashes = (0, (4 - place, 2))
            axes.axhline(y, label=level.label, color=GRAY, linewidth=0.8, linestyle=dashes)
            if spread:
                axes.axhspan(y - spread, y + spread, color=GRAY, alpha=0.12, linewidth=0)
        for one in self.published:
            label = f"{one.label}: {one.y:g}"
            axes.plot(one.x, one.y, "D", markerfacecolor="white", color=GRAY, label=label)
        if self.log_x:  # the values themselves are marked
            values = sorted({p.x for line in self.lines for p in line.points})
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.set_xticks([], minor=True)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.margins(x=0.1 if any(line.point_labels for line in self.lines) else 0.04, y=0.1)
        if len(self.lines) + len(self.levels) + len(self.published) > 1:
            axes.legend(frameon=False)


def _draw_line(axes: "Axes", line: Line, place: int) -> None:
    """Draw a line with a bar of each standard deviation, and the labels above its points."""
    marker = MARKERS[place % len(MARKERS)] if len(line.points) <= MOST_MARKED else ""
    spreads = [point.spread or 0.0 for point in line.points]
    axes.errorbar(
        [point.x for point in line.points],
        [point.y for point in line.points],
        spreads if any(spreads) else None,
        color=color_of(place),
        linestyle=DASHES[place % len(DASHES)],
        marker=marker,
        elinewidth=0.8,
        capsize=1.8,
        label=line.label,
    )
    for point, text in zip(line.points, line.point_labels, strict=False):
        above: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center"}
        axes.annotate(text, (point.x, point.y), color=color_of(place), **above)


@dataclass(frozen=True, kw_only=True)
class BarPanel(Panel):
    """Shares of several parts, one bar each."""

    y_label: str
    names: Sequence[str]
    shares: tuple[Point, ...]
    """One share from 0 to 1 for each name; x is its place."""

    def draw(self, axes: "Axes") -> None:
        """Draw a bar per name with its share in percent above it."""
        heights = [100 * share.y for share in self.shares]
        spreads = [100 * (share.spread or 0.0) for share in self.shares]
        colors = [color_of(place) for place in range(len(heights))]
        errors = spreads if any(spreads) else None
        bars = axes.bar(range(len(heights)), heights, width=0.65, color=colors, yerr=errors)
        axes.bar_label(bars, fmt="%.0f")
        axes.set_xticks(range(len(heights)), self.names)
        axes.set_ylabel(f"{self.y_label} (%)")
        axes.margins(y=0.15)
