"""End of a run: its request, tables, the last screen."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.contents import Contents
from benchmarks.results.failed_step import explain_failed_step
from benchmarks.results.final_screen import final_screen
from benchmarks.results.records import read_results
from benchmarks.tables import update_tables
from pretrain.running.atomic_files import WriteError
from pretrain.running.console import format_duration
from pretrain.running.stop import EXIT_RESUMABLE
from transfer.cells.cell import Cell, finished
from transfer.cells.execution import may_pass_later

if TYPE_CHECKING:
    from benchmarks.report_parts.requested import Requested


def finish_run(
    rows: Sequence[PlannedCell],
    failed: Sequence[Cell],
    request: RunAll,
    start_s: float,
    unreadable: Mapping[str, str],
) -> int:
    """Write tables and report, print the last screen and the counts; return the exit status.

    start_s: the start of the run, as monotonic. unreadable: reasons of checkpoints without cells,
    since their files could not be read, by name.
    """
    from benchmarks.report import update_report  # a plan needs no report
    from benchmarks.report_parts.pretraining import runs_of_files

    contents = update_tables(request.settings.results)
    written = [contents is not None]
    try:
        print(f"\n{_last_screen(rows, request, unreadable, contents)}\n", flush=True)
    except Exception as error:  # also a fault of the suite, whose traceback is printed
        explain_failed_step("the last screen is missing", error, "the same command")
        written.append(False)
    runs = runs_of_files(row.cell.backbone.file for row in rows)
    written.append(update_report(request.settings.results, runs, contents))
    words = [f"{len(rows)} cell{'s' * (len(rows) != 1)}", f"{len(failed)} failed"]
    lost = f"{len(unreadable)} checkpoint{'s' * (len(unreadable) != 1)} could not be read"
    words += [lost] * bool(unreadable)
    print(", ".join([*words, format_duration(time.monotonic() - start_s)]), file=sys.stderr)
    if any(may_pass_later(cell) for cell in failed):
        return EXIT_RESUMABLE
    return int(bool(failed or unreadable) or not all(written))


def _last_screen(
    rows: Sequence[PlannedCell],
    request: RunAll,
    unreadable: Mapping[str, str],
    contents: Contents | None,
) -> str:
    results = contents.results if contents else read_results(request.settings.results)
    # the records of snapshots have a folder of their own
    runs = results.snapshots if request.snapshots else results.runs
    asked = (row for row in rows if row.state in ("run", "cached"))
    records = {_requested(row).cell: finished(row.cell) for row in asked}
    own = [run for run in runs if run.failure or records.get(run.cell) == run.stored]
    width = shutil.get_terminal_size().columns
    return final_screen(own, list(records), unreadable, width)


def remember_request(rows: Sequence[PlannedCell], results: Path, *, named: bool) -> None:
    """Keep what a run was asked for, so that the report tells what of it has no result.

    named: the user named the tasks; else only those were asked for whose data are there.
    """
    from benchmarks.report_parts.requested import remember_requested

    with suppress(WriteError):  # a full disk: the cells say so
        remember_requested(results, [_requested(row) for row in rows if named or not row.missing])


def _requested(row: PlannedCell) -> "Requested":
    from benchmarks.report_parts.requested import Requested

    return Requested(
        backbone=row.cell.backbone.name,
        key=row.cell.key,
        protocol=row.cell.task.protocol,
        schedule=row.cell.settings.schedule,
        seed=row.cell.seed,
        why=row.why if row.state in ("unfit", "no data") else "",
        data=row.missing,
    )
