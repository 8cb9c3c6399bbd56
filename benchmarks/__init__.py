"""One checkpoint, every task, and tables that stand beside the papers'.

run_all.py     plan, run and collect: the main command
plan.py        what a run would do, before it does anything
suites.py      which tasks each paper reports, and their primary metrics
tables.py      python -m benchmarks.tables: from result files to results/tables
paper_page.py  one published table with our rows in it
method_page.py methods that were trained alike, beside each other
curves.py      python -m benchmarks.curves: a task over the snapshots of pre-training runs
curve_page.py  their pages and CSV files
overview.py    every backbone and every task on one page
records.py     reads the result files, tolerant of torn ones
blocks.py      which results may share a column
cells.py       what stands in a cell: mean, deviation, number of runs
verdict.py     tolerances, which number is best, what a difference means
against.py     our numbers beside the same method's published ones
grid.py        lines of numbers, the best of each column bold
markdown.py    padded tables and numbered notes
published.py   reads published/
published/     the numbers printed in the five papers, one file each
bench_*.py     speed: both ways in one process, and their ratio
"""
