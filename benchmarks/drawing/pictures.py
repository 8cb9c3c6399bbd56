"""Captions, file names, stated numbers, and the commands that make what a figure lacks."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from benchmarks.drawing.figure import Drawn, Figure, Panel, Picture, Point
from benchmarks.drawing.kinds import Kind, value_text
from benchmarks.pages.blocks import schedule_words
from benchmarks.pages.published import Paper, Statement, papers
from benchmarks.pages.records import Model

T = TypeVar("T")


class Candidate(NamedTuple):
    """A picture of one kind of material; that of the highest rank gets the figure's plain name."""

    rank: tuple[Any, ...]
    kind: Kind
    picture: Picture


def ranked_pictures(candidates: Iterable[Candidate], problems: Iterable[str] = ()) -> Drawn:
    """Return the pictures from the highest rank on; all but the first have names of their kinds."""
    names: list[str] = []
    pictures = []
    for _, kind, picture in sorted(candidates, key=lambda one: one.rank, reverse=True):
        words = [kind.task, schedule_words(kind.schedule), *kind.pretraining[2:]] if names else []
        parts = (re.sub(r"[^\w.]+", "-", word) for word in words if word)
        name = ".".join([picture.file_name, *parts])
        count = 1 + sum(other == name or other.startswith(f"{name}.no") for other in names)
        names.append(name if count == 1 else f"{name}.no{count}")
        pictures.append(replace(picture, file_name=names[-1]))
    return Drawn(pictures=tuple(pictures), problems=tuple(dict.fromkeys(problems)))


def versions(ranked: Iterable[Sequence[T]]) -> list[list[T]]:
    """Return the best of each sequence, then the second best of those that have one, and so on."""
    return [[one for one in row if one is not None] for row in zip_longest(*ranked)]


def captioned(
    figure: Figure,
    panels: Panel | Sequence[Panel],
    sentences: Sequence[str],
    *,
    exact: bool,
    columns: int = 0,
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
) -> Picture:
    """Return a picture whose caption names the printed figure and says how ours differs.

    exact: all results are those of the paper's recipes under its protocol. columns: panels of one
    row; all if not given.
    """
    paper, name = paper_of(figure.id), printed_name(figure.id)
    own = "" if exact else "Not the paper's runs or data: compare the shape, not the numbers."
    opening = f"{name} of {paper.name} (arXiv:{paper.arxiv}): {figure.what}."
    shown = tuple(panels) if isinstance(panels, Sequence) else (panels,)
    return Picture(
        file_name=figure.file_name,
        title=title_of(figure.id),
        panels=shown,
        columns=columns or len(shown),
        caption=tuple(text for text in (opening, own, *sentences, *figure.remarks) if text),
        header=header,
        rows=tuple(rows),
    )


def paper_of(figure_id: str) -> Paper:
    """Return the paper of a figure such as jcl/fig2a."""
    return next(paper for paper in papers() if paper.id == figure_id.partition("/")[0])


def printed_name(figure_id: str) -> str:
    """Return the name of a figure as a paper prints it: "Figure 2(a)" of "jcl/fig2a"."""
    number, panel = re.fullmatch(r"\w+/fig(\d+)([a-z]?)", figure_id).groups()  # type: ignore[union-attr]
    return f"Figure {number}({panel})" if panel else f"Figure {number}"


def title_of(figure_id: str) -> str:
    """Return paper and figure, such as "JCL, Figure 2(a)"."""
    return f"{paper_of(figure_id).name}, {printed_name(figure_id)}"


def stated(figure_id: str, key: str) -> Any:
    """Return a stated number; KeyError if the text does not state it."""
    values = [one.values[key] for one in statements(figure_id) if key in one.values]
    if not values:
        raise KeyError(f"{figure_id}: no stated number {key!r}")
    return values[0]


def statements(figure_id: str) -> list[Statement]:
    """Return what the text states on a figure."""
    return [one for one in paper_of(figure_id).stated if one.where == printed_name(figure_id)]


def paper_sentences(
    figure_id: str, models: Mapping[str, Sequence[Model]], varied: Iterable[str] = ()
) -> list[str]:
    """Return the sentence on the settings in which each line's runs differ from the paper's.

    varied: settings on the x axis. Without a difference, or without records of settings: nothing.
    """
    left_out = {*varied}
    lines = []
    for label, own in models.items():
        run = own[0].settings
        words = [
            f"{symbol} {value_text(run[name])} ({', '.join([value_text(paper), *source])})"
            for one in statements(figure_id)
            for symbol, (name, paper, *source) in one.settings.get(own[0].method, {}).items()
            if name in run and name not in left_out and run[name] != paper
        ]
        lines += [f"{label}: {', '.join(words)}"] * bool(words)
    text = f"Settings unlike the paper's, whose are in brackets: {'; '.join(lines)}."
    return [text] * bool(lines)


def not_run(wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    """Return the sentence on labels of which there is no run; nothing if all are there."""
    absent = ", ".join(label for label in wanted if label not in {*there})
    return [f"Not run: {absent}."] if absent else []


def point_words(point: Point, digits: int = 4) -> tuple[str, ...]:
    """Return x, mean, standard deviation and number of runs as words of a CSV file."""
    x = "" if point.x != point.x else f"{point.x:g}"
    spread = "" if point.spread is None else f"{point.spread:.{digits}f}"
    return x, f"{point.y:.{digits}f}", spread, str(point.num_runs)


FOLDERS = {
    "in100": "$IMAGENET100/train",
    "in1k": "$IMAGENET/train",
    "cifar10": "$CIFAR10/train",
    "cifar100": "$CIFAR100/train",
}
"""Folders of pre-training images by the first word of a recipe's name; the user sets these."""
EXPLANATION = (
    "In these commands, $IMAGENET100, $CIFAR10 and the like are folders whose train/ holds a "
    "folder of images per class, and $DATASETS is the folder of all data sets for evaluation."
)


def pretrain_and_evaluate(recipes: Sequence[str], tasks: str) -> list[str]:
    """Return the commands that pre-train recipes, all on the same images, and evaluate each."""
    file = "encoder.pt" if "view_statistics" in tasks else "backbone.pt"  # with its projector
    one = len(recipes) == 1
    recipe = recipes[0] if one else "$r"
    name = row_name(recipe) if one else "${r/\\//-}"  # as bash writes row_name
    commands = [
        pretrain(recipe, like=recipes[0]),
        f"python benchmarks/run_all.py --ckpt runs/{recipe}/{file} --name {name} "
        f"--data $DATASETS --tasks {tasks}",
    ]
    return commands if one else [f"for r in {' '.join(recipes)}; do {' && '.join(commands)}; done"]


def pretrain_and_follow(recipes: Sequence[str], task: str) -> list[str]:
    """Return the commands that pre-train recipes with snapshots and evaluate all of these."""
    loop = pretrain("$r", "--snapshot-epochs 10", like=recipes[0])
    folders = " ".join(f"runs/{recipe}/snapshots" for recipe in recipes)
    names = " ".join(map(row_name, recipes))
    return [
        f"for r in {' '.join(recipes)}; do {loop}; done",
        f"python benchmarks/run_all.py --snapshots {folders} --name {names} --data $DATASETS "
        f"--tasks {task}",
    ]


def pretrain(recipe: str, options: str = "", like: str = "") -> str:
    """Return the command that runs a recipe; `like` is one on the same images for a variable."""
    dataset = (like or recipe).partition("/")[2].partition("-")[0]
    end = f" {options}" if options else ""
    return f"python -m pretrain {recipe} --data {FOLDERS[dataset]} --out runs/{recipe}{end}"


def row_name(recipe: str) -> str:
    """Return the name of a recipe's backbone in the tables."""
    return recipe.replace("/", "-")
