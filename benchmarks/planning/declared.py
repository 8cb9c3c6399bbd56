"""Recipes that a user declares for files that do not say how they were made: --as."""

from collections.abc import Sequence
from difflib import get_close_matches

from benchmarks.pages.published import published_recipes


def declared_recipes(declared: Sequence[str], num_checkpoints: int) -> tuple[str, ...]:
    """Return the declared recipe of each checkpoint, '' for none.

    ValueError for a wrong number of recipes, and for what no paper's number names: such a recipe
    would be compared with nothing.
    """
    if declared and len(declared) != num_checkpoints:
        raise ValueError(
            f"--as {' '.join(declared)}: {len(declared)} recipes for {num_checkpoints} "
            "checkpoints; '' declares nothing"
        )
    known = published_recipes()
    for recipe in declared:
        if recipe and recipe not in known:
            close = get_close_matches(recipe, known, n=3, cutoff=0.3)
            raise ValueError(
                f"--as {recipe}: no published number is of this recipe; close are "
                f"{', '.join(close) or 'none'}. `python -m pretrain --list` shows all"
            )
    return tuple(declared) or ("",) * num_checkpoints
