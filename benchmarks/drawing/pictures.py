"""Captions, file names and stated numbers, which all figures share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.drawing.figure import Identity, Panel, Picture, printed_name
from benchmarks.drawing.kinds import Kind, value_text
from benchmarks.pages.blocks import schedule_words
from benchmarks.pages.published import Statement, papers
from benchmarks.pages.records import Model


def captioned(
    figure: Identity,
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
    paper = next(p for p in papers() if p.id == figure.id.partition("/")[0])
    name = printed_name(figure.id)
    own = "" if exact else "Not the paper's runs or data: compare the shape, not the numbers."
    opening = f"{name} of {paper.name} (arXiv:{paper.arxiv}): {figure.what}."
    shown = tuple(panels) if isinstance(panels, Sequence) else (panels,)
    return Picture(
        file_name=figure.file_name,
        title=f"{paper.name}, {name}",
        panels=shown,
        columns=columns or len(shown),
        caption=tuple(text for text in (opening, own, *sentences, *figure.remarks) if text),
        header=header,
        rows=tuple(rows),
    )


def numbered(
    file_name: str, pictures: Sequence[Picture], kinds: Sequence[Kind]
) -> tuple[Picture, ...]:
    """Return the pictures with file names: the first has the figure's, others say their kind."""
    names: list[str] = []
    for kind in kinds:
        words = [kind.task, schedule_words(kind.schedule), *kind.pretraining[2:]] if names else []
        name = ".".join([file_name, *(re.sub(r"[^\w.]+", "-", word) for word in words if word)])
        count = 1 + sum(other == name or other.startswith(f"{name}.no") for other in names)
        names.append(name if count == 1 else f"{name}.no{count}")
    return tuple(
        replace(picture, file_name=name) for picture, name in zip(pictures, names, strict=True)
    )


def stated(figure_id: str, key: str) -> Any:
    """Return a stated number; KeyError if the text does not state it."""
    values = [one.values[key] for one in statements(figure_id) if key in one.values]
    if not values:
        raise KeyError(f"{figure_id}: no stated number {key!r}")
    return values[0]


def statements(figure_id: str) -> list[Statement]:
    """Return what the text states on a figure."""
    paper = next(p for p in papers() if p.id == figure_id.partition("/")[0])
    return [one for one in paper.stated if one.where == printed_name(figure_id)]


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
    return [f"Settings unlike the paper's, whose are in brackets: {'; '.join(lines)}."] * bool(
        lines
    )


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
NAME_IN_LOOP = "${r/\\//-}"
"""Name of the row of recipe $r, as bash writes it: row_name."""


def pretrain_and_evaluate(recipes: Sequence[str], tasks: str) -> list[str]:
    """Return the command that pre-trains recipes, on the same images, and evaluates each."""
    if len(recipes) == 1:
        recipe = recipes[0]
        return [pretrain(recipe), evaluate(recipe, row_name(recipe), tasks)]
    loop = f"{pretrain('$r', like=recipes[0])} && {evaluate('$r', NAME_IN_LOOP, tasks)}"
    return [f"for r in {' '.join(recipes)}; do {loop}; done"]


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


def evaluate(recipe: str, name: str, tasks: str) -> str:
    """Return the command that evaluates a recipe's backbone on tasks."""
    file = "encoder.pt" if "view_statistics" in tasks else "backbone.pt"  # with its projector
    return (
        f"python benchmarks/run_all.py --ckpt runs/{recipe}/{file} --name {name} "
        f"--data $DATASETS --tasks {tasks}"
    )


def row_name(recipe: str) -> str:
    """Return the name of a recipe's backbone in the tables."""
    return recipe.replace("/", "-")
