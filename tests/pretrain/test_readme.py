"""The tables of pretrain/RECIPES.md."""

from pretrain.methods import METHODS
from pretrain.readme import PAGE, method_markdown, page
from pretrain.recipes import RECIPES


def test_the_page_is_current_with_a_row_for_every_recipe_and_method() -> None:
    text = PAGE.read_text()
    assert text == page(), "run: python -m pretrain.readme"
    assert all(f"\n| `{name}` | " in text for name in RECIPES)
    assert all(f"`{name}`" in method_markdown() for name in METHODS)


def test_all_but_the_references_name_a_paper() -> None:
    rows = method_markdown().splitlines()[2:]
    without = [row.split("`")[1] for row in rows if row.endswith("|  |")]
    assert without == ["supervised"]  # with random
