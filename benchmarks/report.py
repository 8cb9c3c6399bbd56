"""Write an HTML report of all results: python -m benchmarks.report --results results.

The report is a single file without network requests: results/report/index.html.
"""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.report_parts.page import report_page
from benchmarks.report_parts.pretraining import runs_of_records
from benchmarks.results.contents import Contents, read_contents, results_folders
from benchmarks.results.failed_step import attempt
from benchmarks.results.records import REPORT
from pretrain.running.atomic_files import write_text
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_writable

FILE = "index.html"


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """Write the report of all results."""

    results: tuple[Path, ...] = (Path("results"),)
    """Folders of records; the report is written to the first one."""
    with_reference: bool = False
    """Also show the suite's own results, results/reference of a checkout."""
    runs: tuple[Path, ...] = ()
    """Folders of further pre-training runs to draw. Those of the evaluated checkpoints are drawn
    if the folder of the checkpoint has their log."""


def write_report(contents: Contents, runs: tuple[Path, ...] = ()) -> Path:
    """Write the report; return its path.

    runs: folders of pre-training runs to draw, in addition to the runs of the checkpoints.

    Raises WriteError if the file cannot be written.
    """
    results = contents.results
    evaluated = runs_of_records([*results.runs, *results.snapshots])
    path = contents.folder / REPORT / FILE
    write_text(path, report_page(contents, (*runs, *evaluated)), "--results")
    return path


def update_report(results: Path, contents: Contents | None = None) -> bool:
    """Write the report and print its path; return whether it was written.

    contents: contents of the folder, if already read.

    A failure is printed. The exit status of the run is then 1.
    """
    command = f"python -m benchmarks.report --results {results.as_posix()}"
    path = attempt(
        lambda: write_report(contents or read_contents(results)),
        "the report was not written",
        command,
    )
    if path:
        print(f"report {path}")
    return path is not None


@one_line_errors(FolderError, FileNotFoundError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(ReportOptions, args, description=__doc__)
    folders = results_folders(request.results, with_reference=request.with_reference)
    check_writable(folders[0], "--results")
    print(write_report(read_contents(*folders), request.runs))
    return 0


if __name__ == "__main__":
    run_command(main)
