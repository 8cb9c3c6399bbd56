"""One checkpoint, every task, and tables that stand beside the papers'.

run_all.py     plan, run and collect: the main command
plan.py        what a run would do, before it does anything
checkpoints.py what a checkpoint is, remembered for plans
one_cell.py    one cell in a process of its own, its command line
workers.py     cells side by side on one machine
slurm_cells.py cells as job arrays of a cluster: submit, once more, cancel
slurm_options.py   what a user may ask of a cluster
cell_resources.py  GPUs, processors and hours of a cell, from its protocol
submission.py  what was submitted, in one file for each submission
status.py      where submitted cells are: queued, running, done, failed and why
collect.py     the last job of a submission: reasons and tables
suites.py      which tasks each paper reports, and their primary metrics
tables.py      python -m benchmarks.tables: from result files to results/tables
paper_page.py  one published table with our rows in it
method_page.py methods that were trained alike, beside each other
curves.py      python -m benchmarks.curves: a task over the snapshots of pre-training runs
curve_page.py  their pages and CSV files
overview.py    every backbone and every task on one page
records.py     reads the result files, tolerant of torn ones
blocks.py      which results may share a column
conditions.py  what the runs of one mean must share
cells.py       what stands in a cell: mean, deviation, number of runs
verdict.py     tolerances, which number is best, what a difference means
against.py     our numbers beside the same method's published ones
grid.py        lines of numbers, the best of each column bold
markdown.py    padded tables and numbered notes
published.py   reads published/
published/     the numbers printed in the five papers, one file each
clock.py       what a measurement counts as time, and into which parts it falls
bench_*.py     speed: both ways in one process, and their ratio
"""
