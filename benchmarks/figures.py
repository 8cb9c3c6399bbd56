"""The papers' figures from result files: python -m benchmarks.figures --results results.

All figures for which there is material are drawn, each as CSV, SVG and PNG, to results/figures,
with a page of their captions. --list shows what is there, what is missing and the commands that
make it.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.drawing import FIGURES
from benchmarks.drawing.commands import EXPLANATION
from benchmarks.drawing.figure import Figure, Material, Picture, UnfitMaterialError, printed_name
from benchmarks.drawing.files import write_page, write_picture
from benchmarks.pages.published import papers
from benchmarks.pages.records import FIGURES as FIGURES_FOLDER
from benchmarks.pages.records import read_results
from transfer.running.folders import FolderError, check_writable


@dataclass(frozen=True, kw_only=True)
class Request:
    """Draw the papers' figures."""

    results: Path = Path("results")
    """Folder of the records; the figures are written to its subfolder figures."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Only print which figures are drawn, what is missing, and the commands that make it."""


def read_material(results: Path) -> Material:
    """Return everything below a folder of results that figures are made of."""
    return Material(
        results=read_results(results).done,
        snapshots=read_results(results, snapshots=True).done,
    )


def draw_figures(results: Path, material: Material) -> tuple[list[Path], list[str]]:
    """Write every figure for which there is material.

    Returns the paths of all pictures, and a sentence for each figure that cannot be drawn.
    """
    folder = results / FIGURES_FOLDER
    paths, problems = [], []
    for figure in FIGURES.values():
        try:
            for picture in figure.pictures(material):
                write_picture(picture, folder)
                paths.append(folder / f"{picture.file_name}.png")
        except UnfitMaterialError as error:
            problems.append(f"{figure_name(figure)} is not drawn: {error}")
    write_page(folder, f"python -m benchmarks.figures --results {results.as_posix()}")
    return paths, problems


def figure_name(figure: Figure) -> str:
    """Return paper and figure, such as "JCL, Figure 2(a)"."""
    paper = next(p for p in papers() if p.id == figure.id.partition("/")[0])
    return f"{paper.name}, {printed_name(figure.id)}"


def list_lines(results: Path, material: Material) -> list[str]:
    """Return the lines of --list: each figure with its pictures and what it still needs."""
    lines = [EXPLANATION]
    for figure in FIGURES.values():
        lines += ["", f"{figure_name(figure)}: {figure.what}"]
        try:
            pictures: Sequence[Picture] = figure.pictures(material)
        except UnfitMaterialError as error:
            pictures = ()
            lines.append(f"  cannot be drawn: {error}")
        lines += [f"  {_state(results, picture)}" for picture in pictures]
        needed = figure.needed(material)
        if needed:
            lines.append("  for the paper's own figure:" if pictures else "  missing:")
            lines += [f"    {command}" for command in needed]
    return lines


def _state(results: Path, picture: Picture) -> str:
    path = results / FIGURES_FOLDER / f"{picture.file_name}.png"
    return f"drawn: {path}" if path.exists() else f"can be drawn: {path}"


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    try:
        if not request.results.is_dir():
            raise FileNotFoundError(
                f"{request.results}: no such folder; expected the records of "
                "python benchmarks/run_all.py"
            )
        material = read_material(request.results)
        if request.listed:
            print("\n".join(list_lines(request.results, material)))
            return 0
        check_writable(request.results, "--results")
        paths, problems = draw_figures(request.results, material)
    except (FolderError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    for path in paths:
        print(f"figure  {path}")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not paths:
        print("no figure: --list says what is missing and how to make it", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
