"""The table of all recipes: its rows, and its text for a console; it needs no torch."""

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
