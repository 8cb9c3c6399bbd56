"""The page of methods."""

from docs.generate import methods_page


def test_all_but_the_references_name_a_paper() -> None:
    rows = methods_page().partition("| --- |")[2].splitlines()[1:]
    without = [row.split("`")[1] for row in rows if row.endswith("|  |")]
    assert without == ["supervised"]  # with random
