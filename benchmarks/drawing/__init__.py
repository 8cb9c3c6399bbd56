"""The papers' figures, from records and logs of pre-training to pictures.

figures.yaml  what each figure shows: its kind, and the arguments of that kind
figure.py     reading that file; drawing one figure; the recipes that it lacks
kinds.py      one function per kind of figure, from results to panels and their numbers
selection.py  which results may share a picture or a line, and which are the paper's own
logs.py       logs of pre-training runs below the results, and points of their lines
panels.py     panels of lines, histograms and bars, drawn by matplotlib above a caption
captions.py   titles, captions and the numbers that the papers' texts state
files.py      CSV, SVG and PNG of a picture, all three or none, and the page that lists them
"""
