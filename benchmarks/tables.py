"""Write Markdown tables of all results: python -m benchmarks.tables --results results.

There is one page per published table of settings or of implemented tasks, one page for numbers that
papers state only in their text, one for methods with the same training, and an overview. All
results are also in results.csv. Each curve of snapshots has a CSV file in figures. Equal results
give identical files.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results.chosen_table import Format, chosen_table
from benchmarks.results.contents import (
    CSV_FILE,
    Contents,
    named_folders,
    read_contents,
    results_csv,
    results_folders,
)
from benchmarks.results.failed_step import attempt
from benchmarks.results.overview import curve_files, method_page, overview_page
from benchmarks.results.paper_page import paper_page, settings_page
from benchmarks.results.published import all_tables
from benchmarks.results.records import FIGURES, TABLES
from benchmarks.results.stated import stated_page
from benchmarks.results.tables import Page, latex, markdown
from pretrain.running.atomic_files import explain_write_errors, write_whole
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_writable


@dataclass(frozen=True)
class TableOptions:
    """Write the tables of all results."""

    results: tuple[Path, ...] = (Path("results"),)
    """Folders of records. The tables are written to the subfolder tables of the first one."""
    with_reference: bool = False
    """Also show the results that come with the suite (results/reference of a checkout)."""
    format: Format = "markdown"
    """latex: also write a LaTeX file (booktabs) next to each page; later commands keep it up to
    date. csv: only for a single table (--name or --tasks)."""
    name: tuple[str, ...] = ()
    """Print a single table of these checkpoints, in this order, for a paper; write no files."""
    tasks: str = ""
    """Tasks of the single table, separated by commas, such as
    in1k_linear,voc07_svm@11point,transfer_linear."""


def pages_of(contents: Contents) -> dict[str, Page]:
    """Return all pages by file name, the overview last."""
    numbers, command = contents.numbers, contents.command("benchmarks.tables")
    with_ours = {tables.table.id: tables for tables in contents.papers_tables}
    pages: dict[str, tuple[str, Page]] = {}
    for paper, table in all_tables():
        title = f"{paper.name}, {table.number}"
        if table.kind == "settings":
            pages[table.file_name] = title, settings_page(table, paper, command)
        elif table.id in with_ours:
            pairs = [pair for pair in contents.pairs if pair.printed.table is table]
            pages[table.file_name] = title, paper_page(with_ours[table.id], pairs, command)
    pages["stated.md"] = "Numbers of the running texts", stated_page(numbers, command)
    if methods := method_page(numbers, command):
        pages["methods.md"] = "Comparison of methods", methods
    titles = [(title, name) for name, (title, _) in pages.items()]
    overview = overview_page(numbers, contents.results.unused, titles, command)
    return {name: page for name, (_, page) in pages.items()} | {"overview.md": overview}


def write_tables(contents: Contents, *, with_latex: bool = False) -> list[Path]:
    """Write all pages, results.csv and the curves; return the pages' paths.

    The overview is the last path. It lists truncated, edited, copied and third-party files.
    with_latex: also write a LaTeX file next to each page; existing LaTeX files are always updated.
    """
    folder = contents.folder / TABLES
    pages = pages_of(contents)
    texts = {contents.folder / CSV_FILE: results_csv(contents)}
    for name, text in curve_files(contents.snapshots).items():
        texts[contents.folder / FIGURES / name] = text
    if "methods.md" not in pages:
        for suffix in (".md", ".tex"):
            (folder / f"methods{suffix}").unlink(missing_ok=True)
    for name, page in pages.items():
        path = folder / name
        texts[path] = markdown(page)
        of_latex = path.with_suffix(".tex")
        if (with_latex or of_latex.exists()) and (text := latex(page)):
            texts[of_latex] = text
    for path, text in texts.items():
        content = text.encode(errors="backslashreplace")
        if not path.is_file() or path.read_bytes() != content:
            write_whole(path, content, "--results")
    return [folder / name for name in pages]


def update_tables(results: Path) -> Contents | None:
    """Write all pages and figures and print their paths; return the contents.

    Returns None after a failure of the tables, which is printed. The exit status of the run is then
    1.
    """
    from benchmarks.figures import update_figures  # --help draws nothing

    def write() -> Contents:
        with explain_write_errors(results, "--results"):
            results.mkdir(parents=True, exist_ok=True)
        contents = read_contents(results)
        paths = write_tables(contents)
        print(f"tables  {len(paths)} pages, first {paths[-1]}")
        return contents

    command = f"python -m benchmarks.tables --results {results.as_posix()}"
    if contents := attempt(write, "the tables are not up to date", command):
        update_figures(contents)
    return contents


@one_line_errors(FolderError, FileNotFoundError, ValueError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(TableOptions, args, description=__doc__)
    folders = results_folders(request.results, with_reference=request.with_reference)
    if request.name or request.tasks:
        tasks = tuple(filter(None, (task.strip() for task in request.tasks.split(","))))
        with named_folders(folders):
            table = chosen_table(read_contents(*folders).numbers, request.name, tasks)
        print(table.text(request.format).rstrip("\n"))
        for note in table.notes if request.format == "csv" else []:
            print(note, file=sys.stderr)
        return 0
    if request.format == "csv":
        raise ValueError(
            "--format csv: for a table of --name or --tasks; all numbers are in results.csv"
        )
    check_writable(folders[0], "--results")
    is_latex = request.format == "latex"
    paths = write_tables(read_contents(*folders), with_latex=is_latex)
    if is_latex:
        paths = [path for page in paths if (path := page.with_suffix(".tex")).exists()]
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    run_command(main)
