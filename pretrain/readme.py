"""python -m pretrain.readme: write pretrain/RECIPES.md, the tables of methods and recipes, anew."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pretrain.methods import METHODS
from pretrain.recipe_table import HEADER, recipe_rows
from pretrain.recipes import RECIPES

PAGE = Path(__file__).with_name("RECIPES.md")


def page() -> str:
    """Return the page with both tables."""
    return "\n\n".join(
        (
            "# Methods and recipes of pre-training",
            "`python -m pretrain.readme` writes this page.",
            "## Methods",
            method_markdown(),
            "## Recipes",
            "The last column names the published rows that a recipe stands for.",
            recipe_markdown() + "\n",
        )
    )


def method_markdown() -> str:
    """Return a Markdown table of the methods: names, idea and paper, from each file's docstring."""
    names: dict[str, list[str]] = {}
    for name, (method, _) in METHODS.items():
        names.setdefault(method.__module__, []).append(f"`{name}`")
    rows = [
        (", ".join(methods), *idea_and_paper(sys.modules[module].__doc__ or ""))
        for module, methods in names.items()
    ]
    return markdown(("methods", "idea", "paper"), rows)


def idea_and_paper(docstring: str) -> tuple[str, str]:
    """Return the first line of a docstring, and the first sentence after it or an empty text."""
    idea, _, rest = docstring.partition("\n\n")
    paper = " ".join(rest.split()).partition(". ")[0]
    return idea.rstrip("."), paper.rstrip(".")


def recipe_markdown() -> str:
    """Return a Markdown table of all recipes, with the method and the architecture of each."""
    rows = [
        (f"`{name}`", recipe.method, recipe.arch, *row)
        for (name, *row), recipe in zip(recipe_rows(), RECIPES.values(), strict=True)
    ]
    return markdown((HEADER[0], "method", "network", *HEADER[1:]), rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


if __name__ == "__main__":
    PAGE.write_text(page())
