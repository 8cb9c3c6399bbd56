"""The papers' figures from result files: python -m benchmarks.figures --results results.

All figures for which there is material are drawn, each as CSV, SVG and PNG, to results/figures,
with a page of their captions. --list shows what is there, and which recipes and tasks are missing.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Drawn, Figure, Material, Picture
from benchmarks.drawing.files import is_drawn, remove_stale, write_page, write_picture
from benchmarks.drawing.logs import keep, read_logs, read_run
from benchmarks.drawing.pictures import title_of
from benchmarks.results.contents import Contents
from benchmarks.results.failed_step import explain_failed_step
from benchmarks.results.final_screen import shortened
from benchmarks.results.records import FIGURES as FIGURES_FOLDER
from benchmarks.results.records import Results, read_results, require_folder
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_row_name, check_writable


@dataclass(frozen=True, kw_only=True)
class Request:
    """Draw the papers' figures."""

    results: Path = Path("results")
    """Folder of the records; the figures are written to its subfolder figures."""
    logs: tuple[Path, ...] = ()
    """Folders of runs that have ended, whose metrics.jsonl is kept below the results (CO2 3)."""
    name: tuple[str, ...] = ()
    """Names of these runs; those of their folders if not given."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only print which figures are drawn, and which recipes and tasks are missing."""


def material_of(results: Path, found: Results) -> Material:
    """Return everything in a folder of results that figures are made of."""
    return Material(
        results=tuple(found.done),
        snapshots=tuple(run for run in found.snapshots if not run.failure),
        logs=read_logs(results)[0],
    )


def keep_logs(request: Request) -> None:
    """Copy the logs of the request's runs below the results; ValueError if one is not whole."""
    names = request.name or tuple(folder.resolve().name for folder in request.logs)
    if len(names) != len(request.logs):
        raise ValueError(f"--name: {len(names)} names for {len(request.logs)} folders of --logs")
    if len(set(names)) < len(names):
        raise ValueError(f"runs {', '.join(names)}: a name occurs twice; give each a --name")
    for folder, name in zip(request.logs, names, strict=True):
        check_row_name(name, folder.resolve().name)
    logs = [read_run(folder, name) for folder, name in zip(request.logs, names, strict=True)]
    for log in logs:
        print(f"log  {keep(log, request.results)}")


RETIRED = ("looc_figure3a", "looc_figure3b")
"""Figures that earlier versions drew; the report shows these nearest images larger."""


class Outcome(NamedTuple):
    """Pictures of a folder of results."""

    paths: list[Path]
    """All pictures."""
    new: list[Path]
    """Those that were drawn now because their numbers or captions are new."""
    problems: list[str]
    """Sentences on material that cannot be drawn."""


def _draw(figure: Figure, material: Material) -> Drawn:
    """Return the pictures of a figure; if its records cannot be drawn, a sentence says why."""
    try:
        return figure.draw(material)
    except ImportError:
        raise
    except Exception as error:  # whatever it is: the other figures are drawn
        return Drawn(problems=(f"cannot be drawn: {_reason(error)}",))


def _reason(error: Exception) -> str:
    """Return an error as words of one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def draw_figures(results: Path, material: Material) -> Outcome:
    """Write every figure for which there is material, and remove pictures that have none left.

    A figure that cannot be drawn becomes a problem; the others are drawn.
    """
    folder = results / FIGURES_FOLDER
    outcome = Outcome([], [], [])
    for figure_name in RETIRED:
        remove_stale(figure_name, (), folder)
    for figure in FIGURES.values():
        drawn = _draw(figure, material)
        problems = list(drawn.problems)
        kept = set()
        for picture in drawn.pictures:
            path = folder / f"{picture.file_name}.png"
            try:
                outcome.new.extend([path] if write_picture(picture, folder) else [])
            except (OSError, ImportError):  # every other picture would fail as well
                raise
            except Exception as error:  # whatever it is: the other figures are drawn
                problems.append(f"{picture.file_name} cannot be drawn: {_reason(error)}")
                continue
            kept.add(picture.file_name)
            outcome.paths.append(path)
        remove_stale(figure.file_name, kept, folder)
        outcome.problems.extend(f"{title_of(figure.id)}: {problem}" for problem in problems)
    outcome.problems.extend(read_logs(results)[1])
    write_page(folder, f"python -m benchmarks.figures --results {results.as_posix()}")
    return outcome


def read_material(results: Path) -> Material:
    """Read everything in a folder of results that figures are made of."""
    return material_of(results, read_results(results))


def update_figures(contents: Contents) -> None:
    """Draw what there is material for; print how many pictures are new, and the first problem.

    If that fails, one line says why: a figure must not fail an evaluation that has ended.
    """
    results = contents.folder
    command = f"python -m benchmarks.figures --results {results.as_posix()}"
    try:
        outcome = draw_figures(results, material_of(results, contents.results))
    except Exception as error:  # also a fault of the suite, whose traceback is printed
        explain_failed_step("the figures are not up to date", error, command)
        words = []
    else:
        if outcome.new:
            print(f"figures  {len(outcome.new)} new, first {outcome.new[0]}")
        words = [shortened(problem, 160) for problem in outcome.problems[:1]]
        if (more := len(outcome.problems) - 1) > 0:
            words += [f"{more} more problem{'s' * (more > 1)} of figures: {command} prints them"]
    for line in words:
        print(line, file=sys.stderr, flush=True)


def list_lines(results: Path, material: Material) -> list[str]:
    """Return the lines of --list: each figure with its pictures and what it still needs."""
    lines: list[str] = []
    for figure in FIGURES.values():
        lines += [*([""] if lines else []), f"{title_of(figure.id)}: {figure.what}"]
        drawn = _draw(figure, material)
        lines += [f"  {_state(results, picture)}" for picture in drawn.pictures]
        lines += [f"  {problem}" for problem in drawn.problems]
        needed = figure.needed(material)
        if needed:
            lines.append("  missing for the paper's own runs:" if drawn.pictures else "  missing:")
            lines += [f"    {recipe}" for recipe in needed]
    return lines


def _state(results: Path, picture: Picture) -> str:
    folder = results / FIGURES_FOLDER
    path = folder / f"{picture.file_name}.png"
    return f"drawn: {path}" if is_drawn(picture, folder) else f"can be drawn: {path}"


@one_line_errors(FolderError, FileNotFoundError, ValueError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, words, description=__doc__)
    if request.listed and request.logs:
        raise ValueError("--logs: --list keeps no log; run the command without --list first")
    if request.listed:
        print("\n".join(list_lines(request.results, read_material(request.results))))
        for problem in read_logs(request.results)[1]:
            print(problem, file=sys.stderr)
        return 0
    check_writable(request.results, "--results")
    require_folder(request.results)
    keep_logs(request)
    outcome = draw_figures(request.results, read_material(request.results))
    for path in outcome.paths:
        print(f"figure  {path}")
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    if not outcome.paths:
        print("no figure: --list says what is missing and how to make it", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command(main, only_prints="--list" in sys.argv)
