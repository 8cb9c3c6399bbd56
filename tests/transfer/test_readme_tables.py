"""The generated tables of TASKS.md."""

import pytest

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


def test_a_row_has_counts_source_and_tasks() -> None:
    rows = {row.split("`")[1]: row for row in dataset_table().splitlines()[2:]}
    assert rows["dtd"] == (
        "| `dtd` | Describable Textures | 47 | 1,880 | 1,880 | 1,880 | 625 MB | download "
        '| ["made available to the computer vision community for research purposes"]'
        "(https://www.robots.ox.ac.uk/~vgg/data/dtd/) "
        "| [robots.ox.ac.uk](https://www.robots.ox.ac.uk/~vgg/data/dtd/) "
        "| `transfer_linear/dtd`, `dtd_knn` |"
    )


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="tasks: written by"):
        with_current_tables("# Transfer\n")
