"""Start and end of a run: states, tables, report and summary."""

import shutil
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from benchmarks.results.contents import Contents
from benchmarks.results.failed_step import attempt
from benchmarks.results.final_screen import final_screen
from benchmarks.results.records import CellId, read_results
from benchmarks.tables import update_tables
from benchmarks.words import plural
from pretrain.running.console import format_duration
from pretrain.running.reading import ReadError
from pretrain.running.stop import EXIT_RESUMABLE
from transfer.cells import state
from transfer.cells.cell import Cell, finished
from transfer.cells.state import StateName, read_states
from transfer.datasets.expected import DataError
from transfer.record import Record
from transfer.tasks import reading_of


def finish_run(
    rows: Sequence[PlannedCell],
    request: RunAll,
    start_s: float,
    unreadable: Mapping[str, str],
) -> int:
    """Write the results and print the summary; return the exit status.

    start_s: start of the run, by time.monotonic. unreadable: errors of checkpoints that could not
    be read and thus have no cells, by name.
    """
    from benchmarks.report import update_report  # a plan needs no report

    requested = [row.cell for row in rows if row.state in ("run", "cached")]
    records = [(cell, record_of(cell)) for cell in requested]
    failed = [cell for cell, record in records if record is None]
    contents = update_tables(request.settings.results)
    summary = attempt(
        lambda: _summary(records, request, unreadable, contents),
        "the summary is missing",
        "the same command",
    )
    if summary is not None:
        print(f"\n{summary}\n", flush=True)
    has_report = update_report(request.settings.results, contents)
    counts = [plural(len(rows), "evaluation"), f"{len(failed)} failed"]
    for state_name, text in (("unsupported", "unsupported"), ("missing data", "with missing data")):
        if count := sum(row.state == state_name for row in rows):
            counts.append(f"{count} {text}")
    if unreadable:
        counts.append(f"{plural(len(unreadable), 'checkpoint')} could not be read")
    print(", ".join([*counts, format_duration(time.monotonic() - start_s)]), file=sys.stderr)
    if any(state.failure(cell).startswith(ReadError.__name__) for cell in failed):
        return EXIT_RESUMABLE
    is_complete = contents is not None and summary is not None and has_report
    return int(bool(failed or unreadable) or not is_complete)


def record_of(cell: Cell) -> Record | None:
    """Return the record of an evaluated cell, or None.

    The data may be gone by now. A cell that is done since the start of the run still has a record:
    the plan or the evaluation compared the data.
    """
    try:
        return finished(cell)
    except (DataError, ReadError) as error:
        if not state.is_done(cell):
            return None
        print(f"{cell.key}  evaluated, but its data cannot be read now: {error}", file=sys.stderr)
        return finished(cell, compares_data=False)


def _summary(
    records: Sequence[tuple[Cell, Record | None]],
    request: RunAll,
    unreadable: Mapping[str, str],
    contents: Contents | None,
) -> str:
    results = contents.results if contents else read_results(request.settings.results)
    # the records of snapshots are in a separate folder
    runs = results.snapshots if request.makes_curves else results.runs
    record_of = {cell_id(cell): record for cell, record in records}
    runs_of_request = [run for run in runs if run.failure or record_of.get(run.cell) == run.stored]
    width = shutil.get_terminal_size().columns
    return final_screen(runs_of_request, list(record_of), unreadable, width)


def cell_id(cell: Cell) -> CellId:
    """Return the key of a cell's results."""
    task = reading_of(cell.key)[0]
    return CellId(cell.backbone.name, task, cell.task.protocol, cell.settings.schedule, cell.seed)


def write_requested(rows: Sequence[PlannedCell], *, named: bool, is_local: bool) -> None:
    """Write the states of requested cells, and delete outdated states.

    The report lists requested cells without a result by these states. If an earlier cell of these
    checkpoints could not start, its state is deleted.

    named: the user named the tasks; otherwise, cells with missing data were not requested.
    is_local: the cells run on this machine; a submission to a cluster writes the states itself.
    """
    settings, names = rows[0].cell.settings, {row.cell.backbone.name for row in rows}
    for earlier in read_states(settings.results):
        never_started = earlier.name in ("missing data", "unsupported")
        if never_started and earlier.content["backbone"] in names:
            earlier.path.unlink(missing_ok=True)
    for row in rows:
        if row.state == "cached":
            state.note_finished(row.cell)
        elif row.state == "run" and is_local:
            state.write(row.cell, "queued")
        elif row.state != "run" and (named or not row.missing):
            name: StateName = row.state
            state.write(row.cell, name, row.reason, missing_data=list(row.missing))
