"""The tables of pretrain/README.md."""

from pretrain.methods import METHODS
from pretrain.readme import README, method_markdown, with_tables
from pretrain.recipes import RECIPES


def test_the_tables_are_current() -> None:
    text = README.read_text()
    assert text == with_tables(text), "run: python -m pretrain.readme"


def test_every_recipe_has_a_row_and_every_method_is_named() -> None:
    text = README.read_text()
    assert all(f"\n| `{name}` | " in text for name in RECIPES)
    assert all(f"`{name}`" in method_markdown() for name in METHODS)


def test_all_but_the_references_name_a_paper() -> None:
    rows = method_markdown().splitlines()[2:]
    without = [row.split("`")[1] for row in rows if row.endswith("|  |")]
    assert without == ["supervised", "random"]
