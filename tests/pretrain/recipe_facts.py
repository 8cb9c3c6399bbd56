"""Facts of a recipe for both halves' tests: tables and exported network."""

import re
from typing import Any

from benchmarks.results.published import papers
from pretrain.recipes import Recipe


def tables_of(recipe: Recipe[Any]) -> set[str]:
    """Ids of the tables that list a recipe.

    table1-3 is three of them.
    """
    result = re.findall(r"(\w+/table)(\d)(?:-(\d))?", recipe.table_row)
    named = {table.id for paper in papers() for table in paper.tables}
    return named & set(re.findall(r"\w+/\w+", recipe.table_row)) | {
        f"{paper}{number}"
        for paper, first, last in result
        for number in range(int(first), int(last or first) + 1)
    }


def exported_arch(recipe: Recipe[Any]) -> str:
    """Return the architecture in the backbone file.

    LooC++ and MoCo++ export all heads.
    """
    match recipe.method:
        case "loocpp":
            return f"{recipe.arch}-heads{1 + len(recipe.config.designated)}"
        case "mocopp":
            return f"{recipe.arch}-heads{recipe.config.num_heads}"
    return recipe.arch
