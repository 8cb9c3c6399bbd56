"""Line charts as SVG by matplotlib, with colors that follow the page's light or dark scheme.

A chart holds numbers and fixed words only. Names that come from files stand in the page's legend,
where the templates escape them.
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.panels import COLORS as OF_FIGURES
from benchmarks.drawing.panels import MARKERS as MARKERS_OF_FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Plot

COLORS = (*OF_FIGURES[:6], "#8C6BB1", "#7F7F7F")
"""Colors that color-blind readers can tell apart, without the black of print, and two more."""
MARKERS = (*MARKERS_OF_FIGURES, "*")
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
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A chart before it is drawn: its lines, and words and scales of its axes."""

    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    """Points of each line by its name."""
    chosen: Mapping[str, float] = field(default_factory=dict)
    """Place on the x axis that is marked by a ring, by the name of the line."""
    note: str = ""
    log_x: bool = False
    edges: bool = False
    """The first and the last place on the x axis are the edges of a search, and are shaded."""
    markers: bool = True
    from_zero: bool = False
    """The y axis starts at zero."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its caption and legend."""

    title: str
    svg: str
    legend: tuple[tuple[str, str, str], ...]
    """Sign, color and name of each line."""
    note: str = ""


def line_charts(drafts: Iterable[Draft]) -> list[Chart]:
    """Return the charts that have a finite number, each name with one color in all of them.

    If a chart has more lines than there are colors, the first ones are drawn and its note says so.
    """
    kept = [replace(draft, series=lines) for draft in drafts if (lines := _finite_lines(draft))]
    names = dict.fromkeys(name for draft in kept for name in draft.series)
    places = {name: place for place, name in enumerate(names)}
    return [_chart(draft, places) for draft in kept]


def _chart(draft: Draft, places: Mapping[str, int]) -> Chart:
    shown = replace(draft, series=dict(list(draft.series.items())[:MOST_LINES]))
    num_more, note = len(draft.series) - len(shown.series), draft.note
    note = f"{note} {num_more} more are not drawn.".strip() if num_more else note
    legend = []
    for name in shown.series:
        color, marker, stroke = _look(places[name])
        sign = SIGNS[marker] if draft.markers else STROKE_SIGNS[stroke]
        legend.append((sign, color, name))
    return Chart(title=draft.title, svg=_svg(shown, places), legend=tuple(legend), note=note)


def _look(place: int) -> tuple[str, int, int]:
    """Return color, marker and stroke; lines of one color have unlike markers and strokes."""
    once_around, color = divmod(place, len(COLORS))
    return COLORS[color], (place + once_around) % len(MARKERS), once_around % len(STROKES)


def _finite_lines(draft: Draft) -> dict[str, Points]:
    """Return the lines with points that the axes can show, at most MOST_POINTS of each."""
    found = {}
    for name, points in draft.series.items():
        shown = [(x, y) for x, y in points if math.isfinite(x + y)]
        shown = [(x, y) for x, y in shown if x > 0 or not draft.log_x]
        # counted from the end, which is what the run came to
        found[name] = shown[:: -max(1, -(-len(shown) // MOST_POINTS))][::-1]
    return {name: points for name, points in found.items() if points}


def _svg(draft: Draft, places: Mapping[str, int]) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": repr(draft),  # names of clip paths must differ on one page
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
        for name, points in draft.series.items():
            color, marker, stroke = _look(places[name])
            shape = MARKERS[marker] if draft.markers and len(points) <= 20 else ""
            xs, ys = zip(*points, strict=True)
            plot.plot(xs, ys, STROKES[stroke], c=color, marker=shape, markersize=4, linewidth=1.6)
            if (chosen := draft.chosen.get(name)) is not None and chosen in xs:
                y = ys[xs.index(chosen)]
                plot.plot([chosen], [y], "o", ms=11, mfc="none", mec=color, mew=1.8)
        every = [point for points in draft.series.values() for point in points]
        if draft.log_x:
            plot.set_xscale("log")
            plot.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            plot.xaxis.set_minor_formatter(lambda *_: "")
        elif all(float(x).is_integer() for x, _ in every):
            plot.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
        if draft.from_zero:
            plot.set_ylim(0, 1.08 * max(*(y for _, y in every), 1e-12))
        if draft.edges:
            _shade_edges(plot, sorted({x for x, _ in every}))
        plot.set_xlabel(draft.x)
        plot.set_ylabel(draft.y)
        plot.grid(color=INK, alpha=0.12, linewidth=0.8)
        buffer = io.StringIO()
        empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=empty)
    return _on_page(buffer.getvalue())


def _shade_edges(plot: "Plot", places: Sequence[float]) -> None:
    """Shade the first and the last place of a search over powers: the best may lie beyond."""
    if len(places) < 3:
        return
    low, high = plot.get_xlim()
    first, last = math.sqrt(places[0] * places[1]), math.sqrt(places[-2] * places[-1])
    for start, end in ((low, first), (last, high)):
        plot.axvspan(start, end, color=INK, alpha=0.07, linewidth=0)
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
