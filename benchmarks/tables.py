"""Markdown pages from result files: python -m benchmarks.tables --results results.

There is one page for every published table of settings or of a task that is built here, one for the
numbers of the papers' running texts, one for methods that were trained alike, one for each task
that was run on snapshots, and an overview. All numbers also stand in results.csv. Then the papers'
figures are drawn.
The same results give the same bytes.
"""

import re
import sys
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal

from benchmarks.pages.calibration import calibration_line, with_line
from benchmarks.pages.failed_step import explain_failed_step
from benchmarks.pages.overview import curve_files, curve_pages, method_page, overview_page
from benchmarks.pages.paper_page import paper_page, settings_page, tasks_of
from benchmarks.pages.published import papers
from benchmarks.pages.records import (
    FIGURES,
    TABLES,
    read_results,
    require_folder,
    unused_lines,
)
from benchmarks.pages.results_csv import write_csv
from benchmarks.pages.stated import stated_page
from pretrain.running.atomic_files import explain_write_errors, write_text
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_writable


@dataclass(frozen=True)
class Request:
    """Write the tables of all results."""

    results: Path = Path("results")
    """Folder of the records; the tables are written to its subfolder tables."""
    format: Literal["markdown", "latex"] = "markdown"
    """latex: also a file of tabulars (booktabs) beside each page, kept up to date from then on."""


def write_tables(results: Path) -> list[Path]:
    """Write all pages; return their paths, the overview last.

    The overview lists torn, edited, copied and foreign files, and stderr says how many there are.
    FileNotFoundError without a results folder.
    """
    require_folder(results)
    records = read_results(results)
    command = f"python -m benchmarks.tables --results {results.as_posix()}"
    pages = {}
    listed = []
    for paper in papers():
        for table in paper.tables:
            if table.kind == "settings":
                pages[table.file_name] = settings_page(table, paper, command)
            elif tasks_of(table):
                pages[table.file_name] = paper_page(table, paper, records, command)
            if table.file_name in pages:
                listed.append((f"{paper.name}, {table.number}", table.file_name))
    pages["stated.md"] = stated_page(papers(), records, command)
    listed.append(("Numbers of the running texts", "stated.md"))
    methods = method_page(records, command)
    if methods:
        pages["methods.md"] = methods
        listed.append(("Methods beside each other", "methods.md"))
    snapshot_records = read_results(results, snapshots=True)
    for name, (title, text) in curve_pages(snapshot_records, command).items():
        pages[name] = text
        listed.append((title, name))
    for name, text in curve_files(snapshot_records).items():
        _write(results / FIGURES / name, text)
    named = replace(records, warnings=records.warnings + snapshot_records.warnings)
    pages["overview.md"] = overview_page(named, listed, command)
    for line in unused_lines(named.warnings, results):
        print(line, file=sys.stderr)
    write_csv(results, records)
    for page in (results / TABLES).glob("*.*"):  # those whose records are gone
        ours = page.suffix in (".md", ".tex") and re.match("methods$|curves_", page.stem)
        if ours and f"{page.stem}.md" not in pages:
            page.unlink()
    line = calibration_line(results)
    paths = [_write(results / TABLES / name, with_line(text, line)) for name, text in pages.items()]
    write_latex([path for path in paths if path.with_suffix(".tex").exists()])
    return paths


def update_tables(results: Path) -> bool:
    """Write all pages and print their paths; return whether that was possible.

    If not, one line says why, and the exit status of the run is 1: its records are written.
    """
    from benchmarks.figures import update_figures  # --help draws nothing

    try:
        with explain_write_errors(results, "--results"):
            results.mkdir(parents=True, exist_ok=True)
        paths = write_tables(results)
    except Exception as error:  # also a fault of the suite, whose traceback is printed
        command = f"python -m benchmarks.tables --results {results.as_posix()}"
        explain_failed_step("the tables are not up to date", error, command)
        return False
    print(f"tables  {len(paths)} pages, first {paths[-1]}")
    update_figures(results)
    return True


def _write(path: Path, text: str) -> Path:
    """Write a page whole or not at all; WriteError if that fails."""
    write_text(path, text, "--results")
    return path


def write_latex(pages: list[Path]) -> list[Path]:
    """Write the tables of pages as LaTeX files beside them; return these files."""
    texts = {path: latex_tables(path.read_text(encoding="utf-8")) for path in pages}
    return [_write(path.with_suffix(".tex"), text) for path, text in texts.items() if text]


SIGNS = {"±": r"$\pm$", "–": "--", "−": "$-$", "→": r"$\rightarrow$", "✓": r"$\checkmark$"}
SIGNS |= {"<": "$<$", ">": "$>$"}
ESCAPED = 0xE000
"""First of the private characters that stand for signs which are escaped in markdown."""
LITERAL = {"<": "$<$", ">": "$>$", "[": "{[}", "*": "{*}", "~": r"\textasciitilde{}"}
LITERAL |= {"\\": r"\textbackslash{}", "`": r"\textasciigrave{}", "^": r"\textasciicircum{}"}
LITERAL |= {sign: f"\\{sign}" for sign in "$&_#%{}"}
"""Signs as LaTeX shows them, for those that are escaped in markdown."""
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True))


def latex_tables(page: str) -> str:
    """Return the tables of a markdown page as tabulars, each below its heading as a comment."""
    import pandas as pd

    parts, heading = [], ""
    for is_table, lines in groupby(page.splitlines(), lambda line: line.startswith("|")):
        if not is_table:
            heading = [heading, *(one.lstrip("# ") for one in lines if one.startswith("#"))][-1]
            continue
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
        head, rule, *body = ([_without_escapes(cell.strip()) for cell in row] for row in rows)
        columns = "".join("r" if cell.endswith(":") else "l" for cell in rule)
        frame = pd.DataFrame(body, columns=head)
        text = frame.to_latex(index=False, column_format=columns, escape=True)
        parts.append(f"% {heading}\n{_with_signs(text)}")
    return "\n".join(parts)


def _without_escapes(text: str) -> str:
    """Return markdown with a private character for each escaped sign, which is no markup."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", lambda match: chr(ESCAPED + ord(match[1])), text)


def _with_signs(text: str) -> str:
    """Return escaped LaTeX with bold and italic as in markdown, and signs that compilers know.

    A row never begins with [ or *, which would be arguments of the line break before it.
    """
    text = re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", text)
    italic = r"(^|& )\*((?:\\&|[^*&])+)\*(?= &| \\\\)"
    text = re.sub(italic, r"\1\\textit{\2}", text, flags=re.MULTILINE)
    for sign, command in SIGNS.items():
        text = text.replace(sign, command)
    raised = f"[{''.join(SUPERSCRIPTS)}]+"
    text = re.sub(
        raised, lambda found: f"$^{{{''.join(SUPERSCRIPTS[s] for s in found[0])}}}$", text
    )
    text = re.sub(r"^[\[*]", lambda match: f"{{{match[0]}}}", text, flags=re.MULTILINE)
    signs = {chr(sign): chr(sign - ESCAPED) for sign in range(ESCAPED, ESCAPED + 128)}
    return text.translate({ord(k): LITERAL.get(sign, sign) for k, sign in signs.items()})


@one_line_errors(FolderError, FileNotFoundError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    check_writable(request.results, "--results")
    paths = write_tables(request.results)
    for path in write_latex(paths) if request.format == "latex" else paths:
        print(path)
    return 0


if __name__ == "__main__":
    run_command(main)
