"""One HTML page from records: everything that the tables hold, with pictures. No torch here.

page.py          the page: its parts in order within one size, rendered by the templates
contents.py      records and failures of a results folder, read once
checkpoints.py   checkpoints that were evaluated, failures, tasks that nobody asked for, hours
requested.py     cells that runs were asked for: which have no result?
comparison.py    which checkpoint is better, where, and surely? Our numbers beside the papers'
task_charts.py   its charts: searches, losses, severities, snapshots
task_classes.py  its tables: by class, size and corruption; confusions
galleries.py     pictures that cells keep beside their records, and the papers' figures
charts.py        line charts as SVG by matplotlib
pretraining.py   logs of pre-training runs, and folders of runs that later pages show, too
templates/       the page's HTML, its style and its script
"""
