"""Line charts as SVG by matplotlib, with colors that follow the page's light or dark scheme.

A chart holds numbers and fixed words only. Names that come from files stand in the page's legend,
where the templates escape them.
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
"""Colors of Okabe and Ito, which color-blind readers can tell apart, and two more."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SIGNS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★")
"""The markers as the legend shows them."""
INK = "#010203"
"""Stands for the page's color of text until the chart is on the page."""
MOST_LINES = len(COLORS)
STROKES = ("-", "--", ":", "-.")
"""Strokes of lines: another one for each round through the colors."""
STROKE_SIGNS = ("▬", "╍", "┅", "┉")
"""The strokes as the legend shows them where the lines have no markers."""
MOST_POINTS = 200
SIZE_INCHES = (5.4, 2.9)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    chosen: float | None = None
    """Place on the x axis that is marked by a ring; None for no mark."""
    place: int = 0
    """Place of the name in an order that several charts share; it sets color and marker."""

    @property
    def color(self) -> str:
        """Return the color of the line."""
        return COLORS[self.place % len(COLORS)]

    @property
    def marker(self) -> int:
        """Return the place of the marker; names of one color have unlike markers."""
        return (self.place + self.place // len(COLORS)) % len(MARKERS)

    @property
    def stroke(self) -> int:
        """Return the place of the stroke."""
        return self.place // len(COLORS) % len(STROKES)


@dataclass(frozen=True, kw_only=True)
class LegendEntry:
    """Sign, color and name of one line."""

    sign: str
    color: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its caption and legend."""

    title: str
    svg: str
    legend: tuple[LegendEntry, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Words and scales of a chart's axes."""

    x: str
    y: str
    log_x: bool = False
    edges: bool = False
    """The first and the last place on the x axis are the edges of a search, and are shaded."""
    markers: bool = True
    from_zero: bool = False
    """The y axis starts at zero."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A chart before it is drawn."""

    title: str
    series: Sequence[Series]
    axes: Axes
    note: str = ""


def line_charts(drafts: Iterable[Draft]) -> list[Chart]:
    """Return the charts that have a finite number, each name with one color in all of them.

    If a chart has more lines than there are colors, the first ones are drawn and its note says so.
    """
    kept = [(d, lines) for d in drafts if (lines := _finite_lines(d))]
    names = dict.fromkeys(line.name for _, lines in kept for line in lines)
    places = {name: place for place, name in enumerate(names)}
    return [
        _chart(draft, [replace(line, place=places[line.name]) for line in lines])
        for draft, lines in kept
    ]


def line_chart(title: str, series: Sequence[Series], axes: Axes, note: str = "") -> Chart | None:
    """Return a chart of the lines that have a finite number; None if there are none.

    A line's color is that of its place among all the given ones.
    """
    placed = [replace(one, place=place) for place, one in enumerate(series)]
    draft = Draft(title=title, series=placed, axes=axes, note=note)
    lines = _finite_lines(draft)
    return _chart(draft, lines) if lines else None


def _finite_lines(draft: Draft) -> list[Series]:
    return [line for one in draft.series if (line := _finite(one, draft.axes)).x]


def _chart(draft: Draft, lines: Sequence[Series]) -> Chart:
    drawn, axes, note = lines[:MOST_LINES], draft.axes, draft.note
    if len(lines) > len(drawn):
        note = " ".join([note, f"{len(lines) - len(drawn)} more are not drawn."]).strip()
    legend = tuple(
        LegendEntry(
            sign=SIGNS[line.marker] if axes.markers else STROKE_SIGNS[line.stroke],
            color=line.color,
            name=line.name,
        )
        for line in drawn
    )
    return Chart(title=draft.title, svg=_svg(drawn, axes), legend=legend, note=note)


def _finite(series: Series, axes: Axes) -> Series:
    """Return the points that the axes can show, at most MOST_POINTS of them."""
    points = [
        (x, y)
        for x, y in zip(series.x, series.y, strict=True)
        if math.isfinite(x + y) and (x > 0 or not axes.log_x)
    ]
    if len(points) > MOST_POINTS:
        step = (len(points) - 1) / (MOST_POINTS - 1)
        points = [points[round(i * step)] for i in range(MOST_POINTS)]
    x, y = zip(*points, strict=True) if points else ((), ())
    return replace(series, x=tuple(x), y=tuple(y))


def _svg(lines: Sequence[Series], axes: Axes) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": repr((lines, axes)),  # names of clip paths must differ on one page
        "text.parse_math": False,
        "font.family": "sans-serif",
        "font.size": 9,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.edgecolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context(settings):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        plot = figure.add_subplot()
        for line in lines:
            shape = MARKERS[line.marker] if axes.markers and len(line.x) <= 20 else ""
            color, stroke = line.color, STROKES[line.stroke]
            plot.plot(line.x, line.y, stroke, c=color, marker=shape, markersize=4, linewidth=1.6)
            if line.chosen in line.x:
                y = line.y[line.x.index(line.chosen)]
                plot.plot([line.chosen], [y], "o", ms=11, mfc="none", mec=color, mew=1.8)
        if axes.log_x:
            plot.set_xscale("log")
            plot.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            plot.xaxis.set_minor_formatter(lambda *_: "")
        elif all(float(x).is_integer() for line in lines for x in line.x):
            plot.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
        if axes.from_zero:
            plot.set_ylim(0, 1.08 * max(*(max(line.y) for line in lines), 1e-12))
        if axes.edges:
            _shade_edges(plot, lines)
        plot.set_xlabel(axes.x)
        plot.set_ylabel(axes.y)
        plot.grid(color=INK, alpha=0.12, linewidth=0.8)
        buffer = io.StringIO()
        empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=empty)
    return _on_page(buffer.getvalue())


def _shade_edges(plot: "Plot", lines: Sequence[Series]) -> None:
    """Shade the first and the last place of a search: an optimum there may lie beyond."""
    places = sorted({x for line in lines for x in line.x})
    if len(places) < 3:
        return
    low, high = plot.get_xlim()
    log = plot.get_xscale() == "log"

    def between(a: float, b: float) -> float:
        return math.sqrt(a * b) if log else (a + b) / 2

    plot.axvspan(low, between(places[0], places[1]), color=INK, alpha=0.07, linewidth=0)
    plot.axvspan(between(places[-2], places[-1]), high, color=INK, alpha=0.07, linewidth=0)
    plot.set_xlim(low, high)


def _on_page(svg: str) -> str:
    """Return the drawing as an element of the page, in the page's color of text."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # the size comes from the page's style; the names of groups would clash between charts
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r'<g id="[\w.]+"', "<g", svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    return svg.replace(INK, "currentColor")
