"""The papers' figures, from records and logs of pre-training to pictures.

figure.py    the content of a picture, and what every figure answers
kinds.py     which results may stand in one picture or on one line; words for captions
sweeps.py    a metric against a setting of pre-training
pictures.py  captions and file names
stated.py    numbers on figures that the running texts state
commands.py  commands that make what a figure lacks
style.py     drawing with matplotlib
files.py     CSV, SVG and PNG, all three or none, and the page that lists them
jcl.py       the figures of JCL
co2.py       the figures of CO2
lorac.py     the figures of LORAC
"""

from benchmarks.drawing import co2, jcl, lorac
from benchmarks.drawing.figure import Figure

FIGURES: dict[str, Figure] = {
    figure.id: figure for paper in (jcl, co2, lorac) for figure in paper.FIGURES
}
"""Figures with results by id."""
