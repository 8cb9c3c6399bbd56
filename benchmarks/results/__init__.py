"""Compute all displayed numbers from records. Nothing here imports torch.

records.py       read all records and failures of a results folder as rows
published.py     numbers that papers print, from benchmarks/published
numbers.py       average runs over seeds, and group them into tables of comparable results
differences.py   scores with errors, tests of differences, verdicts
verdicts.py      pair our numbers with published ones; reasons for missing verdicts
tables.py        tables with notes and bold numbers, as markdown and LaTeX
paper_page.py    page of one published table with our rows
chosen_table.py  table of chosen checkpoints and tasks, for a paper
overview.py      overview of backbones and tasks, comparison of methods, curves
stated.py        page of the numbers in running texts
contents.py      contents of results folders, read once; rows of results.csv
explanation.py   explanation of one record, and the command to repeat it
final_screen.py  summary at the end of a run: numbers, verdicts and failures
failed_step.py   message on tables, figures or a report that could not be written
"""
