"""One HTML page from records: everything that the tables hold, with pictures. No torch here.

page.py          the page: its parts in order, rendered by the templates
contents.py      records and failures of a results folder, read once
checkpoints.py   what was evaluated: checkpoints, failures, tasks that are missing
picture.py       our numbers beside the papers', task by task, as one picture
paper_tables.py  the papers' tables with our rows
details.py       what opens behind a number of ours
templates/       the page's HTML, its style and its script
"""
