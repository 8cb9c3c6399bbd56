"""Last steps of a run, after all of its cells: tables, the last screen, Weights & Biases."""

from pathlib import Path

from benchmarks.execution.wandb_results import log_results
from benchmarks.pages.final_screen import RequestedCell, final_screen
from benchmarks.pages.records import read_results
from benchmarks.planning.plan import PlannedCell
from benchmarks.tables import update_tables
from transfer.tasks import reading_of


def finish_run(rows: list[PlannedCell], results: Path, runs: Path, wandb: str) -> bool:
    """Write tables and report, print the last screen; return whether the tables could be written.

    wandb: project of Weights & Biases that the results are logged to, too; empty for none.
    """
    from benchmarks.report import update_report  # a plan needs no report
    from benchmarks.report_parts.run_folders import runs_of_files

    tables_written = update_tables(results)
    print_final_screen(rows, results)
    update_report(results, runs_of_files(row.cell.backbone.file for row in rows))
    if wandb:
        log_results(wandb, results, runs)
    return tables_written


def print_final_screen(rows: list[PlannedCell], results: Path) -> None:
    """Print the numbers of the cells that a run had to evaluate, and their failures."""
    cells = [
        RequestedCell(
            backbone=row.cell.backbone.name,
            task=reading_of(row.cell.key)[0],
            protocol=row.cell.task.protocol,
            schedule=row.cell.settings.schedule,
            seed=row.cell.seed,
        )
        for row in rows
        if row.state in ("run", "cached")
    ]
    print(f"\n{final_screen(read_results(results), cells)}\n", flush=True)
