"""From records to every number that is shown. Nothing here imports torch.

records.py       every record and failure of a results folder as a row
published.py     the numbers that papers print, from benchmarks/published
numbers.py       which runs may share a table, a row, a mean: our numbers as rows
differences.py   a number with its errors; whether two numbers differ; when one is reproduced
power.py         the smallest difference that runs can show, and the seeds that one needs
verdicts.py      which published numbers belong to ours, and why some have no verdict
tables.py        tables with notes and bold numbers, as markdown and as LaTeX
paper_page.py    one published table with our rows in it
chosen_table.py  one table of chosen checkpoints and tasks, for a paper
overview.py      every backbone and every task on one page; methods compared; curves
stated.py        numbers of the running texts
contents.py      runs, numbers, pairs and papers' tables of a folder, read once; results.csv
explanation.py   everything behind one record, and the command that makes it again
final_screen.py  the summary at the end of a run: numbers, verdicts and failures
failed_step.py   the message on tables, figures or a report that could not be written
"""
