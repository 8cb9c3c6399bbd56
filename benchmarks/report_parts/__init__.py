"""The HTML report of all results.

page.py         its sections in order; explanations of records
document.py     texts, tables, charts and images as HTML
charts.py       line charts as SVG
compare.py      which checkpoint is better, on which tasks, and significantly so
tasks.py        charts, tables and pictures of each task
evaluated.py    checkpoints, failures, hours, and requested cells without a result
requested.py    requested cells without a result, by their states
pretraining.py  logs of pre-training runs, and their folders
"""
