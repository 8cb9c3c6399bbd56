"""A schedule is a name or a share of the paper's length."""

import pytest

from transfer.running.schedule import length_fraction
from transfer.tasks.linear_probe import LinearProbe
from transfer.tasks.linear_transfer import LinearTransfer


@pytest.mark.parametrize(("schedule", "expected"), [("paper", 1), ("short", 0.1), ("0.02", 0.02)])
def test_lengths_follow_the_share(schedule: str, expected: float) -> None:
    assert length_fraction(schedule) == expected
    assert (
        LinearTransfer(dataset="cars", steps=30_000).at_schedule(schedule).steps
        == 30_000 * expected
    )
    probe = LinearProbe(dataset="in100", protocol="p/1", learning_rate=1.0, epochs=100)
    assert probe.at_schedule(schedule).epochs == 100 * expected


@pytest.mark.parametrize("schedule", ["long", "0", "1", "-0.1", "nan", ""])
def test_anything_else_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match="expected paper, short, smoke"):
        length_fraction(schedule)
