"""The table of all recipes, as text for a console and as Markdown for the README."""

from collections.abc import Sequence

from pretrain.recipes import RECIPES

HEADER = ("recipe", "data", "epochs", "batch", "rate", "from", "stands for")


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
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)


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
