"""Recipes that a user declares for files that do not say how they were made: --as."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from benchmarks.pages.published import published_recipes
from benchmarks.planning.checkpoints import Origins
from benchmarks.planning.plan import PlannedCell
from transfer.cells.declaration import settle_declaration


def declared_recipes(declared: Sequence[str], num_checkpoints: int) -> tuple[str, ...]:
    """Return the declared recipe of each checkpoint; '' for none, which withdraws an earlier one.

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


def settle_declarations(
    rows: Sequence[PlannedCell], sources: Origins, *, given: bool
) -> tuple[list[PlannedCell], Origins, list[str]]:
    """Make declarations and finished records agree, and return rows, origins and lines about it.

    given: the command line has --as. Without it, recipes that earlier runs declared are kept.
    """
    backbones = {row.cell.backbone.name: row.cell for row in rows}
    settled = {
        name: settle_declaration(cell.settings.records, cell.backbone, given=given)
        for name, cell in backbones.items()
    }
    kept = [
        replace(row, cell=replace(row.cell, backbone=settled[row.cell.backbone.name][0]))
        for row in rows
    ]
    declared = {
        name: replace(origin, declared=settled[name][0].declared)
        for name, origin in sources.items()
    }
    return kept, declared, [line for _, line in settled.values() if line]
