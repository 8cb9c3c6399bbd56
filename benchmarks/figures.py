"""Draw the papers' figures from results: python -m benchmarks.figures --results results.

All figures with sufficient results are drawn to results/figures, each as CSV, SVG and PNG, with a
page of their captions. --list shows which figures can be drawn, and which recipes and tasks are
missing.
"""

import sys
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.drawing import panels
from benchmarks.drawing.figure import Figure, figures
from benchmarks.drawing.kinds import Inputs, Picture
from benchmarks.drawing.logs import read_logs, read_run, save_log
from benchmarks.drawing.selection import MALFORMED
from benchmarks.results.contents import Contents
from benchmarks.results.failed_step import attempt
from benchmarks.results.records import FIGURES, Results, print_unused, read_results, require_folder
from benchmarks.results.tables import csv_text, escape
from benchmarks.words import plural
from pretrain.running.atomic_files import explain_write_errors, write_text, write_whole
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.datasets.folders import FolderError, check_row_name, check_writable

SUFFIXES = ("png", "svg", "csv")
"""Suffixes in writing order; the CSV, written last, marks completion."""
PAGE = "README.md"
OPENING = "# Figures\n\nThe papers' figures, redrawn."


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """Draw the papers' figures."""

    results: Path = Path("results")
    """Folder of the records; the figures are written to its subfolder figures."""
    logs: tuple[Path, ...] = ()
    """Folders of finished pre-training runs with logs to store (CO2 3)."""
    name: tuple[str, ...] = ()
    """Names of these runs; by default, their folders' names."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only print the drawable figures, and missing recipes and tasks."""


def keep_logs(request: FigureOptions) -> None:
    """Store the logs of runs in the results.

    Raises ValueError if a log is incomplete or a name is missing or repeated.
    """
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


def draw_figures(folder: Path, results: Results) -> tuple[dict[Path, bool], list[str]]:
    """Write every figure with sufficient results, and remove stale ones.

    Returns the pictures with whether they were drawn now, because their numbers or captions are
    new, and sentences on material that cannot be drawn. Then, the other figures are drawn.
    """
    logs, problems_of_logs = read_logs(folder)
    inputs, pictures = Inputs(results, logs), folder / FIGURES
    paths: dict[Path, bool] = {}
    problems: list[str] = []
    captions: dict[str, str] = {}
    for figure in figures().values():
        picture, figure_problems = figure.draw(inputs)
        if picture:
            try:
                is_new = write_picture(figure, picture, pictures)
            except MALFORMED as error:
                figure_problems = [str(error)]
            else:
                paths[pictures / f"{figure.file_name}.png"] = is_new
                captions[figure.id] = figure.caption(picture)
        problems += [f"{figure.title}: {problem}" for problem in figure_problems]
    remove_stale(captions, pictures)
    write_page(captions, pictures, f"python -m benchmarks.figures --results {folder.as_posix()}")
    return paths, [*problems, *problems_of_logs]


def write_picture(figure: Figure, picture: Picture, folder: Path) -> bool:
    """Write the three files of a figure; return whether they were written.

    They are not if all exist, the CSV file has these numbers, and the page has this caption.
    """
    paths = {suffix: folder / f"{figure.file_name}.{suffix}" for suffix in SUFFIXES}
    numbers, caption = csv_text(picture.header, picture.rows), figure.caption(picture)
    if (
        all(path.is_file() for path in (*paths.values(), folder / PAGE))
        and paths["csv"].read_text(encoding="utf-8") == numbers
        and escape(caption) in (folder / PAGE).read_text(encoding="utf-8")
    ):
        return False
    # draw everything before the first file is written, so that no figure is incomplete
    contents = panels.render(picture.panels, figure.title, caption)
    contents = {**contents, "csv": numbers.encode(errors="backslashreplace")}
    for suffix, path in paths.items():
        write_whole(path, contents[suffix], "--results")
    return True


def remove_stale(current: Container[str], folder: Path) -> None:
    """Remove the files of all figures whose ids are not in `current`."""
    for figure in figures().values():
        for suffix in SUFFIXES if figure.id not in current else ():
            path = folder / f"{figure.file_name}.{suffix}"
            with explain_write_errors(path, "--results"):
                path.unlink(missing_ok=True)


def write_page(captions: Mapping[str, str], folder: Path, command: str) -> None:
    """Write a page with all pictures; without pictures, remove it.

    captions: caption of each picture by the id of its figure.
    """
    page = folder / PAGE
    sections = [f"{OPENING} Made by `{command}`."]
    for name, title, caption in sorted(
        (figures()[key].file_name, figures()[key].title, caption)
        for key, caption in captions.items()
    ):
        files = f"[csv]({name}.csv) · [svg]({name}.svg)"
        sections.append(f"## {title}\n\n![{title}]({name}.png)\n\n{escape(caption)} {files}")
    if captions:
        write_text(page, "\n\n".join(sections) + "\n", "--results")
    elif page.exists() and page.read_bytes().startswith(OPENING.encode()):
        with explain_write_errors(page, "--results"):
            page.unlink()


def update_figures(contents: Contents) -> None:
    """Draw the figures; print the number of new ones, and a problem."""
    results = contents.folder
    command = f"python -m benchmarks.figures --results {results.as_posix()}"
    draw = partial(draw_figures, results, contents.results)
    drawn = attempt(draw, "the figures are not up to date", command)
    paths, problems = drawn or ({}, [])
    if new := [path for path, is_new in paths.items() if is_new]:
        print(f"figures  {len(new)} new, first {new[0]}")
    for problem in problems[:1]:
        print(problem if len(problem) <= 160 else f"{problem[:159]}…", file=sys.stderr)
    if num_more := len(problems[1:]):
        noun = plural(num_more, "more problem")
        print(f"{noun} of figures: {command} prints them", file=sys.stderr, flush=True)


def list_lines(folder: Path, results: Results) -> list[str]:
    """Return the lines of --list: each figure and its missing inputs."""
    inputs = Inputs(results, read_logs(folder)[0])
    lines: list[str] = []
    for figure in figures().values():
        picture, problems = figure.draw(inputs)
        lines += [*([""] if lines else []), f"{figure.title}: {figure.what}"]
        if picture:
            lines.append(f"  can be drawn: {folder / FIGURES / figure.file_name}.png")
        lines += [f"  {problem}" for problem in problems]
        if missing := figure.missing(inputs):
            lines.append("  missing for the paper's own runs:" if picture else "  missing:")
            lines += [f"    {recipe}" for recipe in missing]
    return lines


@one_line_errors(FolderError, FileNotFoundError, ValueError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(FigureOptions, args, description=__doc__)
    if request.listed and request.logs:
        raise ValueError("--logs: --list keeps no log; run the command without --list first")
    results = read_results(request.results)
    print_unused(results.unused, request.results)
    if request.listed:
        print("\n".join(list_lines(request.results, results)))
        for problem in read_logs(request.results)[1]:
            print(problem, file=sys.stderr)
        return 0
    check_writable(request.results, "--results")
    require_folder(request.results)
    keep_logs(request)
    paths, problems = draw_figures(request.results, results)
    for path in paths:
        print(f"figure  {path}")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not paths:
        print("no figure could be drawn; --list prints the missing runs", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command(main, only_prints="--list" in sys.argv)
