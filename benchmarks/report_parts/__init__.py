"""The HTML report of all results.

page.py         sections of the report; explanations of records
document.py     texts, tables, charts and images as HTML
charts.py       line charts as SVG
compare.py      comparison of pairs of checkpoints
tasks.py        charts, tables and images of each task
evaluated.py    checkpoints, failures, hours, and requested evaluations without a result
pretraining.py  logs of pre-training runs
"""
