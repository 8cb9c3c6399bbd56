"""The papers' figures, from records and logs of pre-training to pictures.

figure.py      points, lines, pictures, and what every figure answers
kinds.py       which results may share a picture or a line; their numbers and order
sweeps.py      a metric against a setting of pre-training; two such metrics against each other
progress.py    curves during pre-training, of evaluated snapshots
log_curves.py  the same of metrics that runs log
histograms.py  statistics over images, a line per method
heads.py       shares of a network's heads
neighbors.py   grids of images and their nearest neighbors
logs.py        logs of pre-training runs below the results, and points of their lines
pictures.py    captions, order and file names of pictures; commands for what a figure lacks
style.py       pictures by matplotlib: panels in rows above the caption
panels.py      panels of lines, bars and images; colors
files.py       CSV, SVG and PNG, all three or none, and the page that lists them
facts.py       FIGURES of the five papers, from the facts in figures.yaml
"""

from benchmarks.drawing.facts import FIGURES

__all__ = ["FIGURES"]
