"""End of a run: its request, tables, the last screen, Weights & Biases."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.execution.wandb_results import log_results
from benchmarks.pages.final_screen import RequestedCell, final_screen
from benchmarks.pages.records import Results, read_results
from benchmarks.planning.plan import PlannedCell
from benchmarks.tables import update_tables
from pretrain.running.atomic_files import WriteError
from transfer.cells.request import Cell
from transfer.running.console import format_duration
from transfer.tasks import reading_of


def finish_run(
    rows: list[PlannedCell],
    results: Path,
    runs: Path,
    wandb: str = "",
    *,
    unreadable: Mapping[str, str] | None = None,
    snapshots: bool = False,
) -> bool:
    """Write tables and report, print the last screen; return whether both were written.

    wandb: project of Weights & Biases that the results are logged to, too; empty for none.
    unreadable: reasons of checkpoints without cells, by name. snapshots: the cells are of
    snapshots, whose records have a folder of their own.
    """
    from benchmarks.report import update_report  # a plan needs no report
    from benchmarks.report_parts.run_folders import runs_of_files

    tables_written = update_tables(results)
    print_final_screen(rows, read_results(results, snapshots=snapshots), unreadable or {})
    report_written = update_report(results, runs_of_files(row.cell.backbone.file for row in rows))
    if wandb:
        log_results(wandb, results, runs)
    return tables_written and report_written


def remember_request(rows: Sequence[PlannedCell], results: Path, *, named: bool) -> None:
    """Keep what a run was asked for, so that the report tells what of it has no result.

    named: the user named the tasks; else only those were asked for whose data are there.
    """
    from benchmarks.report_parts.requested import Requested, remember_requested

    requested = [
        Requested(
            backbone=row.cell.backbone.name,
            key=row.cell.key,
            protocol=row.cell.task.protocol,
            schedule=row.cell.settings.schedule,
            seed=row.cell.seed,
            why=row.why if row.state in ("unfit", "no data") else "",
            data=row.missing,
        )
        for row in rows
        if named or not row.missing
    ]
    with suppress(WriteError):  # a full disk: the cells say so
        remember_requested(results, requested)


def print_final_screen(
    rows: list[PlannedCell], results: Results, unreadable: Mapping[str, str]
) -> None:
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
    width = shutil.get_terminal_size().columns
    print(f"\n{final_screen(results, cells, unreadable, width)}\n", flush=True)


def print_counts(
    rows: Sequence[PlannedCell], failed: Sequence[Cell], start_s: float, num_unreadable: int = 0
) -> None:
    """Print how many cells there were and failed, and the time since `start_s`, as monotonic.

    num_unreadable: checkpoints without cells, since their files could not be read.
    """
    cells = "cell" if len(rows) == 1 else "cells"
    checkpoints = "checkpoint" if num_unreadable == 1 else "checkpoints"
    words = [f"{len(rows)} {cells}", f"{len(failed)} failed"]
    words += [f"{num_unreadable} {checkpoints} could not be read"] * (num_unreadable > 0)
    words.append(format_duration(time.monotonic() - start_s))
    print(", ".join(words), file=sys.stderr)
