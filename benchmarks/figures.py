"""Draw the papers' figures from results: python -m benchmarks.figures --results results.

All figures with sufficient results are drawn to results/figures, each as CSV, SVG and PNG, with a
page of their captions. --list shows which figures can be drawn, and which recipes and tasks are
missing.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from benchmarks.drawing.figure import figures
from benchmarks.drawing.files import is_drawn, remove_stale, write_page, write_picture
from benchmarks.drawing.kinds import Inputs
from benchmarks.drawing.logs import TrainingLog, read_logs, read_run, save_log
from benchmarks.drawing.selection import MALFORMED
from benchmarks.results.contents import Contents
from benchmarks.results.failed_step import explain_failed_step
from benchmarks.results.final_screen import shortened
from benchmarks.results.records import FIGURES, Results, plural, read_results, require_folder
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_row_name, check_writable


@dataclass(frozen=True, kw_only=True)
class Request:
    """Draw the papers' figures."""

    results: Path = Path("results")
    """Folder of the records; the figures are written to its subfolder figures."""
    logs: tuple[Path, ...] = ()
    """Folders of finished pre-training runs with logs to store (CO2 3)."""
    name: tuple[str, ...] = ()
    """Names of these runs; by default, their folders' names."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only print the drawable figures, and missing recipes and tasks."""


def keep_logs(request: Request) -> None:
    """Store the logs of runs in the results; ValueError if incomplete."""
    names = request.name or tuple(folder.resolve().name for folder in request.logs)
    if len(names) != len(request.logs):
        raise ValueError(f"--name: {len(names)} names for {len(request.logs)} folders of --logs")
    if len(set(names)) < len(names):
        raise ValueError(f"runs {', '.join(names)}: a name occurs twice; give each a --name")
    for folder, name in zip(request.logs, names, strict=True):
        check_row_name(name, folder.resolve().name)
    logs = [read_run(folder, name) for folder, name in zip(request.logs, names, strict=True)]
    for log in logs:
        print(f"log  {save_log(log, request.results)}")


class DrawnFigures(NamedTuple):
    """Pictures of a folder of results."""

    paths: list[Path]
    """All pictures."""
    new: list[Path]
    """Those that were drawn now because their numbers or captions are new."""
    problems: list[str]
    """Sentences on material that cannot be drawn."""


def draw_figures(folder: Path, results: Results) -> DrawnFigures:
    """Write every figure with sufficient results, and remove stale ones.

    A figure that cannot be drawn becomes a problem; the others are drawn.
    """
    logs, problems_of_logs = read_logs(folder)
    inputs, pictures = figure_inputs(results, logs), folder / FIGURES
    outcome, current = DrawnFigures([], [], []), set()
    for figure in figures().values():
        picture, problems = figure.draw(inputs)
        if picture:
            path = pictures / f"{figure.file_name}.png"
            current.add(figure.file_name)
            try:
                is_new = write_picture(figure, picture, pictures)
            except MALFORMED as error:
                outcome.problems.append(f"{figure.title}: {error}")
                continue
            outcome.paths.append(path)
            outcome.new.extend([path] if is_new else [])
        outcome.problems.extend(f"{figure.title}: {problem}" for problem in problems)
    remove_stale(current, pictures)
    outcome.problems.extend(problems_of_logs)
    write_page(pictures, f"python -m benchmarks.figures --results {folder.as_posix()}")
    return outcome


def figure_inputs(results: Results, logs: Sequence[TrainingLog]) -> Inputs:
    """Return the inputs of all figures."""
    snapshots = [run for run in results.snapshots if not run.failure]
    return Inputs(results.succeeded, snapshots, logs)


def update_figures(contents: Contents) -> None:
    """Draw the figures; print the number of new ones, and a problem."""
    results = contents.folder
    command = f"python -m benchmarks.figures --results {results.as_posix()}"
    try:
        outcome = draw_figures(results, contents.results)
    except Exception as error:  # includes bugs, which are printed with a traceback
        explain_failed_step("the figures are not up to date", error, command)
        lines = []
    else:
        if outcome.new:
            print(f"figures  {len(outcome.new)} new, first {outcome.new[0]}")
        lines = [shortened(problem, 160) for problem in outcome.problems[:1]]
        if (num_more := len(outcome.problems) - 1) > 0:
            lines.append(f"{plural(num_more, 'more problem')} of figures: {command} prints them")
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def list_lines(folder: Path) -> list[str]:
    """Return the lines of --list: each figure and its missing inputs."""
    inputs = figure_inputs(read_results(folder), read_logs(folder)[0])
    lines: list[str] = []
    for figure in figures().values():
        picture, problems = figure.draw(inputs)
        lines += [*([""] if lines else []), f"{figure.title}: {figure.what}"]
        if picture:
            path = folder / FIGURES / f"{figure.file_name}.png"
            state = "drawn" if is_drawn(figure, picture, path.parent) else "can be drawn"
            lines.append(f"  {state}: {path}")
        lines += [f"  {problem}" for problem in problems]
        if missing := figure.missing(inputs):
            lines.append("  missing for the paper's own runs:" if picture else "  missing:")
            lines += [f"    {recipe}" for recipe in missing]
    return lines


@one_line_errors(FolderError, FileNotFoundError, ValueError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, args, description=__doc__)
    if request.listed and request.logs:
        raise ValueError("--logs: --list keeps no log; run the command without --list first")
    if request.listed:
        print("\n".join(list_lines(request.results)))
        for problem in read_logs(request.results)[1]:
            print(problem, file=sys.stderr)
        return 0
    check_writable(request.results, "--results")
    require_folder(request.results)
    keep_logs(request)
    outcome = draw_figures(request.results, read_results(request.results))
    for path in outcome.paths:
        print(f"figure  {path}")
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    if not outcome.paths:
        print("no figure could be drawn; --list prints the missing runs", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command(main, only_prints="--list" in sys.argv)
