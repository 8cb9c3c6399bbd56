"""Panels of pictures, drawn by matplotlib above a caption.

On one machine, equal pictures have equal bytes. matplotlib is imported only to draw, with a backend
that needs no display.
"""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.drawing.selection import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without yellow (too light on white)."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
GRAY = "#595959"
MAX_MARKED_POINTS = 30
"""Maximum number of points of a line with markers."""
MAX_BINS = 48
"""Maximum number of drawn bins; records have more."""
PANEL_HEIGHT_IN = 2.6
COLUMN_IN, PAGE_IN = 3.4, 7.0
"""Widths of pictures with one and with several panels, in inches."""
CAPTION_PT = 6.0
CHARACTERS_PER_INCH = 21
"""Caption characters per inch, with a small margin."""
SETTINGS: dict[Any, Any] = {
    # a $ in names of classes and runs does not start a formula
    "text.parse_math": False,
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "ssl-benchmark",
    "savefig.dpi": 300,
}


class Series(NamedTuple):
    """Points of one method or run, in the order of x."""

    label: str
    points: Sequence[Point]
    point_labels: Sequence[str] = ()
    """Labels beside the points."""


class PublishedPoint(NamedTuple):
    """Number that the paper states."""

    label: str
    x: float
    y: float


class Lines(NamedTuple):
    """Lines over a common x axis."""

    x_label: str
    y_label: str
    series: Sequence[Series]
    levels: Sequence[Series] = ()
    """Results without x, as points to draw as horizontal lines."""
    published: Sequence[PublishedPoint] = ()
    log_x: bool = False
    title: str = ""

    def draw(self, axes: "Axes") -> None:
        """Draw the lines with deviations, and a legend if there are several."""
        for index, line in enumerate(self.series):
            _draw_line(axes, line, index)
        for index, level in enumerate(self.levels):
            _, y, spread, _ = level.points[0]
            dashes = (0, (4 - index, 2))
            axes.axhline(y, label=level.label, color=GRAY, linewidth=0.8, linestyle=dashes)
            if spread:
                axes.axhspan(y - spread, y + spread, color=GRAY, alpha=0.12, linewidth=0)
        for label, x, y in self.published:
            axes.plot(x, y, "D", markerfacecolor="white", color=GRAY, label=f"{label}: {y:g}")
        if self.log_x:  # ticks at the values of the points
            values = sorted({point.x for line in self.series for point in line.points})
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.set_xticks([], minor=True)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        axes.margins(x=0.1 if any(line.point_labels for line in self.series) else 0.04, y=0.1)
        if len(self.series) + len(self.levels) + len(self.published) > 1:
            axes.legend(frameon=False)


def _draw_line(axes: "Axes", line: Series, index: int) -> None:
    """Draw a line with error bars and point labels."""
    spreads = [point.spread or 0.0 for point in line.points]
    axes.errorbar(
        [point.x for point in line.points],
        [point.y for point in line.points],
        spreads if any(spreads) else None,
        color=color_of(index),
        linestyle=DASHES[index % len(DASHES)],
        marker=MARKERS[index % len(MARKERS)] if len(line.points) <= MAX_MARKED_POINTS else "",
        elinewidth=0.8,
        capsize=1.8,
        label=line.label,
    )
    offset: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center"}
    for point, text in zip(line.points, line.point_labels, strict=False):
        axes.annotate(text, (point.x, point.y), color=color_of(index), **offset)


def color_of(index: int) -> str:
    """Return the color of the line, bar or histogram with this index."""
    return COLORS[index % len(COLORS)]


class Histogram(NamedTuple):
    """Counts of images between edges."""

    label: str
    edges: Sequence[float]
    """Edges of the bins, one more than counts."""
    counts: Sequence[float]
    mean: float

    @property
    def middles(self) -> list[float]:
        """Return the middle of each bin."""
        return [(low + high) / 2 for low, high in pairwise(self.edges)]

    @property
    def error(self) -> float:
        """Return the standard error of the mean over the images."""
        total, bins = sum(self.counts), list(zip(self.middles, self.counts, strict=True))
        center = sum(middle * count for middle, count in bins) / total
        squares = sum(count * (middle - center) ** 2 for middle, count in bins)
        return math.sqrt(squares / max(total - 1, 1) / total)


class Histograms(NamedTuple):
    """Histograms over a common x axis, in percent of their images."""

    x_label: str
    histograms: Sequence[Histogram]
    title: str = ""

    def draw(self, axes: "Axes") -> None:
        """Draw each histogram in percent, and its mean as a dotted line."""
        bins = self.bins()
        for index, histogram in enumerate(self.histograms):
            color, total = color_of(index), sum(histogram.counts)
            axes.hist(
                histogram.middles,
                bins=bins,
                weights=[100 * count / total for count in histogram.counts],
                histtype="stepfilled",
                facecolor=(color, 0.15),
                edgecolor=color,
                label=histogram.label,
            )
            axes.axvline(histogram.mean, color=color, linewidth=0.8, linestyle=":")
        axes.set_xlabel(self.x_label)
        axes.set_ylabel("images (%)")
        axes.legend(frameon=False)

    def bins(self) -> list[float]:
        """Return bin edges without empty outer bins, at most MAX_BINS bins."""
        edges = self.histograms[0].edges
        counts = zip(*(histogram.counts for histogram in self.histograms), strict=True)
        used = [index for index, count in enumerate(counts) if any(count)]
        merged = -(-(used[-1] + 1 - used[0]) // MAX_BINS)
        bins = list(edges[used[0] : used[-1] + 1 : merged])
        return [*bins, edges[min(used[0] + merged * len(bins), len(edges) - 1)]]


class Bars(NamedTuple):
    """Contributions of several parts, one bar each."""

    y_label: str
    names: Sequence[str]
    shares: Sequence[Point]
    """Contribution (0 to 1) of each name; x is its index."""
    title: str = ""

    def draw(self, axes: "Axes") -> None:
        """Draw a bar per name with its share in percent above it."""
        heights = [100 * share.y for share in self.shares]
        spreads = [100 * (share.spread or 0.0) for share in self.shares]
        colors = [color_of(index) for index in range(len(heights))]
        errors = spreads if any(spreads) else None
        bars = axes.bar(range(len(heights)), heights, width=0.65, color=colors, yerr=errors)
        axes.bar_label(bars, fmt="%.0f")
        axes.set_xticks(range(len(heights)), self.names)
        axes.set_ylabel(f"{self.y_label} (%)")
        axes.margins(y=0.15)


Panel = Lines | Histograms | Bars


def render(panels: Sequence[Panel], title: str, caption: str) -> Mapping[str, bytes]:
    """Return a picture as PNG and SVG with metadata."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's matplotlib settings
        matplotlib.rcParams.update(SETTINGS)
        canvas = Figure(layout="constrained")
        FigureCanvasAgg(canvas)
        width = COLUMN_IN if len(panels) == 1 else PAGE_IN
        text = textwrap.fill(caption, int(width * CHARACTERS_PER_INCH))
        caption_in = (text.count("\n") + 2) * 1.3 * CAPTION_PT / 72
        canvas.set_size_inches(width, PANEL_HEIGHT_IN + caption_in)
        axes = canvas.subplots(1, len(panels), squeeze=False).flat
        for panel, panel_axes in zip(panels, axes, strict=True):
            panel.draw(panel_axes)
            panel_axes.set_title(panel.title or (title if panel is panels[0] else ""))
        text_style: dict[str, Any] = {"fontsize": CAPTION_PT, "color": GRAY, "linespacing": 1.3}
        canvas.supxlabel(text, x=0.01, ha="left", **text_style)
        svg, png = io.BytesIO(), io.BytesIO()
        # omit the date, so that equal data gives equal files
        metadata = {"Title": title, "Description": caption}
        canvas.savefig(svg, format="svg", metadata=metadata | {"Date": None, "Creator": None})
        canvas.savefig(png, format="png", metadata=metadata | {"Software": None})
    return {"png": png.getvalue(), "svg": svg.getvalue()}
