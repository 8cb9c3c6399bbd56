"""Draw the papers' figures from records and pre-training logs.

figures.yaml  content of each figure: its kind and the arguments of that kind
figure.py     read that file; draw one figure; its caption; list its missing recipes
kinds.py      one function per kind of figure, from results to panels with numbers
selection.py  select the results that may share a picture or a line
logs.py       pre-training logs stored in the results, and points of their lines
panels.py     panels of lines, histograms and bars, drawn by matplotlib
"""
