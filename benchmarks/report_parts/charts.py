"""Line charts as SVG, with colors for light and dark mode.

Names of lines come from files, so they appear only in the HTML legend, which is escaped.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape

from benchmarks.drawing.panels import COLORS as FIGURE_COLORS

COLORS = (*FIGURE_COLORS[:6], "#8C6BB1", "#7F7F7F")
"""Colors for color-blind readers: without black, with two more."""
SIGNS = "●■▲◆▼✚✖★"
UNMARKED = "▬"
"""Sign of a line without markers in the legend."""
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 540, 290, 68, 44, 10, 10
"""Size of a chart and its margins, in px."""
LABEL_PX = 9
"""Width of a character of an x axis label, with padding."""
MAX_POINTS, MAX_MARKED, NUM_TICKS = 200, 20, 7
Points = Sequence[tuple[float, float]]


Look = tuple[str, str]
"""Color and marker of a line in all charts."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: lines, axis labels and scales."""

    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    """Points of each line by its name."""
    marked: Mapping[str, float] = field(default_factory=dict)
    """Value of x at which a line gets a ring."""
    note: str = ""
    log_x: bool = False
    edges: bool = False
    """Shade the smallest and the largest x, the edges of a search."""
    markers: bool = True
    looks: Mapping[str, Look] = field(default_factory=dict)
    """Look of each line by its name."""


def line_charts(charts: Iterable[Chart]) -> list[Chart]:
    """Return the charts with finite numbers, with consistent line styles.

    A chart draws at most as many lines as there are colors; its note counts the others.
    """
    looks: dict[str, Look] = {}
    drawable = []
    for chart in charts:
        series = _finite_lines(chart)
        for name in series:
            index = len(looks)  # lines of one color have different markers
            sign = SIGNS[(index + index // len(COLORS)) % len(SIGNS)]
            looks.setdefault(name, (COLORS[index % len(COLORS)], sign))
        note = chart.note
        if num_more := max(0, len(series) - len(COLORS)):
            note = f"{note} {num_more} more are not drawn.".strip()
            series = dict(list(series.items())[: len(COLORS)])
        if series:
            own_looks = {name: looks[name] for name in series}
            drawable.append(replace(chart, series=series, note=note, looks=own_looks))
    return drawable


def _finite_lines(chart: Chart) -> dict[str, Points]:
    """Return the drawable points of each line, at most MAX_POINTS."""
    lines = {}
    for name, points in chart.series.items():
        finite = [(x, y) for x, y in points if math.isfinite(x + y) and (x > 0 or not chart.log_x)]
        # keep the last point, which is the run's result
        lines[name] = finite[:: -max(1, -(-len(finite) // MAX_POINTS))][::-1]
    return {name: points for name, points in lines.items() if points}


def svg(chart: Chart) -> str:
    """Return the drawing: shaded edges, grid and ticks, lines, markers and rings."""
    scale = math.log10 if chart.log_x else float
    xs = sorted({x for points in chart.series.values() for x, _ in points})
    ys = [y for points in chart.series.values() for _, y in points]
    low, high = min(ys), max(ys)
    margin = 0.06 * (high - low or abs(high) or 1)
    bottom, top = low - margin, high + margin
    first, last = scale(xs[0]), scale(xs[-1])
    side = 0.04 * (last - first) or 1

    def px(x: float) -> float:
        fraction = (scale(x) - first + side) / (last - first + 2 * side)
        return round(LEFT + fraction * (WIDTH - LEFT - RIGHT), 1)

    def py(y: float) -> float:
        fraction = (y - bottom) / (top - bottom)
        return round(HEIGHT - BOTTOM - fraction * (HEIGHT - BOTTOM - TOP), 1)

    end, right, elements = HEIGHT - BOTTOM, WIDTH - RIGHT, []

    def text(
        x: float, y: float, content: str, anchor: str = "middle", attributes: str = ""
    ) -> None:
        position = f'x="{x}" y="{y}" text-anchor="{anchor}"{attributes}'
        elements.append(f"<text {position}>{escape(content)}</text>")

    if chart.edges and len(xs) > 2:  # the best value may be outside
        edges = (LEFT, px(math.sqrt(xs[0] * xs[1]))), (px(math.sqrt(xs[-2] * xs[-1])), right)
        for start, stop in edges:
            size = f'width="{stop - start:.1f}" height="{end - TOP}"'
            elements.append(f'<rect x="{start}" y="{TOP}" {size} opacity="0.07"/>')
    for value in _ticks(bottom, top):
        elements.append(
            f'<path d="M{LEFT} {py(value)}H{right}" stroke="currentColor" opacity="0.15"/>'
        )
        text(LEFT - 6, py(value) + 4, f"{value:g}", "end")
    whole = all(float(x).is_integer() for x in xs)
    label_end = -math.inf
    for value in xs if chart.log_x else _ticks(first - side, last + side, whole=whole):
        label = f"{value:.3g}" if chart.log_x else f"{value:g}"
        half_px = LABEL_PX * len(label) / 2
        if px(value) - half_px > label_end:
            text(px(value), end + 16, label)
            label_end = px(value) + half_px
    for name, points in chart.series.items():
        color, sign = chart.looks[name]
        stroke = f'fill="none" stroke="{color}" stroke-width="1.8"'
        line = "L".join(f"{px(x)} {py(y)}" for x, y in points)
        elements.append(f'<path d="M{line}" {stroke}/>')
        for x, y in points:
            if chart.markers and len(points) <= MAX_MARKED:
                text(px(x), py(y) + 4, sign, attributes=f' fill="{color}"')
            if chart.marked.get(name) == x:
                elements.append(f'<circle cx="{px(x)}" cy="{py(y)}" r="8" {stroke}/>')
    text((LEFT + right) / 2, HEIGHT - 8, chart.x)
    text(0, 0, chart.y, attributes=f' transform="translate(13 {(TOP + end) / 2}) rotate(-90)"')
    frame = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12" fill="currentColor" aria-hidden="true"'
    return f"<svg {frame}>{''.join(elements)}</svg>"


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Return about NUM_TICKS round numbers from low to high."""
    rough = (high - low) / NUM_TICKS or abs(high) or 1
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    step = max(1.0, step) if whole else step
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{number * step:.10g}") for number in numbers]
