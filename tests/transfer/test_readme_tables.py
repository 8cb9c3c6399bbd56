"""The generated tables of TASKS.md."""

from transfer.readme_tables import COMMAND, PAGE, with_current_tables


def test_the_readme_shows_the_tasks_and_data_sets_of_today() -> None:
    text = PAGE.read_text()
    assert with_current_tables(text) == text, f"renew the tables: {COMMAND}"
