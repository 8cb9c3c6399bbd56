"""The table of recipes, for --list and, beside that of methods, for pretrain/RECIPES.md.

python -m pretrain.readme writes that page anew; --list needs no torch.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrain.recipes import RECIPES, Recipe
from pretrain.running.atomic_files import write_whole
from pretrain.running.command_line import parse, run_command

PAGE = Path(__file__).with_name("RECIPES.md")
HEADER = ("recipe", "data", "epochs", "batch", "rate", "from", "stands for")


def page() -> str:
    """Return the page with both tables."""
    recipes = [
        (f"`{name}`", recipe.method, recipe.arch, *row, norm_groups(recipe))
        for (name, *row), recipe in zip(recipe_rows(), RECIPES.values(), strict=True)
    ]
    return f"""# Methods and recipes of pre-training

`python -m pretrain.readme` writes this page.

## Methods

{method_markdown()}

## Recipes

"Stands for" names the published rows of a recipe. "Groups" are those of shuffled batch norm in the
paper ([how to train with as many](README.md#what-to-know)).

{markdown((HEADER[0], "method", "network", *HEADER[1:], "groups"), recipes)}
"""


def norm_groups(recipe: Recipe[Any]) -> str:
    """Return the paper's groups of shuffled batch norm; empty if the method shuffles nothing."""
    if not hasattr(recipe.config, "bn_splits"):
        return ""
    if recipe.paper.startswith("ours"):
        return f"ours: GPUs times {recipe.config.bn_splits}"
    return str(recipe.norm_groups or "not stated")


def method_markdown() -> str:
    """Return a Markdown table of the methods: names, idea and paper, from each file's docstring.

    The idea is the first line, the paper the first sentence after it, if any.
    """
    from pretrain.methods import METHODS  # it imports torch

    names: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        names.setdefault(method.__module__, []).append(f"`{name}`")
    rows = []
    for module, methods in names.items():
        idea, _, rest = (sys.modules[module].__doc__ or "").partition("\n\n")
        paper = " ".join(rest.split()).partition(". ")[0]
        rows.append((", ".join(methods), idea.rstrip("."), paper.rstrip(".")))
    return markdown(("methods", "idea", "paper"), rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def recipe_rows(words: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Return a row of `HEADER` for each recipe whose name contains all these words."""
    return [
        (
            name,
            recipe.images,
            f"{recipe.epochs:g}",
            str(recipe.batch_size),
            f"{recipe.learning_rate:g}",
            recipe.paper,
            recipe.table_row,
        )
        for name, recipe in RECIPES.items()
        if all(word in name for word in words)
    ]


def recipe_list(words: Sequence[str] = ()) -> str:
    """Return the recipes whose names contain all these words, one per line in columns."""
    rows = [HEADER, *recipe_rows(words)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (map(str.ljust, row, widths) for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


@dataclass(frozen=True)
class Request:
    """Write pretrain/RECIPES.md. There are no options."""


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    parse(Request, words)
    write_whole(PAGE, page().encode())
    print(f"tables of {len(RECIPES)} recipes  ->  {PAGE}")
    return 0


if __name__ == "__main__":
    run_command(main)
