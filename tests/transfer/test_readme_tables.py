"""The generated tables of TASKS.md."""

from transfer.datasets.catalog import DATASETS
from transfer.readme_tables import (
    COMMAND,
    PAGE,
    dataset_table,
    task_table,
    with_current_tables,
)
from transfer.tasks import TASKS


def test_the_readme_shows_the_tasks_and_data_sets_of_today() -> None:
    text = PAGE.read_text()
    assert with_current_tables(text) == text, f"renew the tables: {COMMAND}"


def test_the_tables_have_one_row_per_task_and_data_set() -> None:
    assert len(task_table().splitlines()) == 2 + len(TASKS)
    assert len(dataset_table().splitlines()) == 2 + len(DATASETS)
