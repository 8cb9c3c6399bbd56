"""The papers' figures, from records and logs of pre-training to pictures.

figure.py      points, lines, pictures, and what every figure answers
kinds.py       which results may share a picture or a line; their numbers and order
sweeps.py      a metric against a setting of pre-training; two such metrics against each other
progress.py    curves during pre-training, of evaluated snapshots
log_curves.py  the same of metrics that runs log
histograms.py  statistics over images, a line per method
heads.py       shares of a network's heads
logs.py        logs of pre-training runs below the results, and points of their lines
pictures.py    captions, order and file names of pictures; commands for what a figure lacks
style.py       pictures by matplotlib: panels in rows above the caption
panels.py      panels of lines and bars; colors
files.py       CSV, SVG and PNG, all three or none, and the page that lists them
figures.yaml   what each figure shows, as FIGURES below reads it
"""

from pathlib import Path
from typing import Any

import yaml

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.heads import HeadShares
from benchmarks.drawing.histograms import Histograms
from benchmarks.drawing.log_curves import LogCurves
from benchmarks.drawing.panels import PublishedPoint
from benchmarks.drawing.pictures import stated
from benchmarks.drawing.progress import SnapshotCurves
from benchmarks.drawing.sweeps import Sweep, Swept, Tradeoff

KINDS = {
    "sweep": Sweep,
    "tradeoff": Tradeoff,
    "histograms": Histograms,
    "snapshot_curves": SnapshotCurves,
    "log_curves": LogCurves,
    "head_shares": HeadShares,
    "line": Swept,
    "point": PublishedPoint,
}
"""The class that a mapping of the file becomes, by its `kind`."""


def read_figures() -> dict[str, Figure]:
    """Return the figures of figures.yaml by their ids."""
    path = Path(__file__).with_name("figures.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {facts["id"]: _built(facts, facts["id"]) for facts in content["figures"]}


def _built(value: Any, figure_id: str) -> Any:
    """Return lists as tuples, mappings of a kind as objects, and stated numbers from the papers."""
    if isinstance(value, list):
        return tuple(_built(one, figure_id) for one in value)
    if not isinstance(value, dict):
        return value
    if "stated" in value:
        return stated(figure_id, value["stated"])
    own = {name: _built(one, figure_id) for name, one in value.items() if name != "kind"}
    return KINDS[value["kind"]](**own) if "kind" in value else own


FIGURES = read_figures()
"""Figures with results by id."""
