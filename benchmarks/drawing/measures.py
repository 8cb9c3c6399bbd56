"""Measures of print: sizes, colors and the room that texts need."""

from collections.abc import Sequence
from typing import Any

from benchmarks.drawing.figure import LinePanel, Panel

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is too light on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
GRAY = "#595959"
COLUMN_IN, PAGE_IN = 3.4, 7.0
"""Widths of a picture with one panel and with several, in inches."""
PANEL_IN = 2.0
"""Height of a panel's axes."""
LEFT_IN, TOP_IN, AXIS_IN, EDGE_IN = 0.55, 0.28, 0.42, 0.08
"""Room for the y axis, the title, the x axis, and an edge."""
GAP = 0.25
"""Gap between a query and its neighbors, as a share of an image's side."""
POINT_IN = 1 / 72
CAPTION_PT, LABEL_PT = 6.0, 7.5
CAPTION_LINE_IN = 1.3 * CAPTION_PT * POINT_IN
LABEL_CHARACTERS = 11
"""Characters of a line that fit left of an image."""
MOST_BINS = 48
"""Bins of a histogram that are drawn; records hold more."""
SMALL_EXPONENT = -3
"""Numbers of this order or below are shown as multiples of a power of ten."""
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": LABEL_PT,
    "axes.labelsize": LABEL_PT,
    "axes.titlesize": LABEL_PT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "ssl-benchmark",
    "svg.fonttype": "path",
    "savefig.dpi": 300,
}


def text_width_in(text: str, size_pt: float) -> float:
    """Return the width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size_pt)
    width_pt: float = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
    return width_pt * POINT_IN


def apart(places: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Return the centers of labels, in order, moved as little as keeps them from overlapping."""
    moved = list(places)
    edge = low
    for i, size in enumerate(sizes):
        moved[i] = max(moved[i], edge + size / 2)
        edge = moved[i] + size / 2
    edge = high
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], edge - sizes[i] / 2)
        edge = moved[i] - sizes[i] / 2
    return moved


def label_room(panel: Panel) -> float:
    """Return the width in inches that labels beside the lines need."""
    if not isinstance(panel, LinePanel):
        return 0.1
    single = len(panel.lines) + len(panel.levels) == 1
    names = [line.label for line in panel.lines if not (single or line.point_labels)]
    names += [level.label for level in panel.levels]
    return 0.1 + max((text_width_in(name, LABEL_PT) for name in names), default=0.0)
