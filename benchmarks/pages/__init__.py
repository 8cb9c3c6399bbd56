"""Pages from records and published numbers. Nothing here imports torch.

records.py     reads the result files, tolerant of torn ones
published.py   reads benchmarks/published
blocks.py      groups of results that may share a table, a column, a mean; why others may not
explanation.py everything behind one record, and the command that makes it again
results_csv.py one row per record and metric, and results.csv
entries.py     from records to entries of a table: mean, deviation, number of runs
differences.py whether two numbers differ, the verdict on a published one
run_deviations.py  how far apart two runs of one protocol come out
against.py     the published rows of a backbone, and our numbers beside theirs
calibration.py the line on the public checkpoint that was reproduced
final_screen.py the last screen of a run: its numbers, verdicts and failures
failed_step.py the message on tables, figures or a report that could not be written
overview.py    every backbone and every task on one page; methods beside each other; curves
paper_page.py  one published table with our rows in it
stated.py      numbers of the running texts
table_rows.py  lines of numbers with notes, as markdown
"""
