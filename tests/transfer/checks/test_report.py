"""Every check has an answer: passed, measured, failed with a reason, or skipped aloud."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transfer.checks.__main__ import main
from transfer.checks.comparison import Differences
from transfer.checks.report import Check, Facts, NotCheckedError, Place, first_line, run_checks

PLACE = Place(device="cpu", folder=Path())


class AcceleratorError(RuntimeError):
    """Stand-in for torch's error of this name."""


class OutOfMemoryError(RuntimeError):
    """Stand-in for torch's error of this name."""


def raising(error: Exception) -> Callable[[Place], Facts]:
    def run(place: Place) -> Facts:
        raise error

    return run


def answers(*checks: Check) -> list[dict[str, Any]]:
    lines: list[str] = []
    list(run_checks(checks, PLACE, lines.append))
    return [json.loads(line) for line in lines]


def check(run: Callable[[Place], Facts], name: str = "a", *, measures: bool = False) -> Check:
    return Check(name=name, group="g", seconds=1.0, run=run, measures=measures)


def test_a_check_is_announced_and_answered() -> None:
    begin, answer = answers(check(lambda place: {"difference": 0.5}))
    assert begin == {"begin": "a"}
    assert answer["seconds"] >= 0
    expected = {"check": "a", "group": "g", "status": "passed", "reason": ""}
    assert answer == {**expected, "seconds": answer["seconds"], "facts": {"difference": 0.5}}


def test_rates_are_measured_and_neither_pass_nor_fail() -> None:
    assert answers(check(lambda place: {}, measures=True))[1]["status"] == "measured"


def test_an_exception_fails_its_check_and_the_next_one_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = answers(check(raising(ValueError("bad\nmore"))), check(lambda place: {}, "b"))
    assert (lines[1]["status"], lines[1]["reason"]) == ("failed", "ValueError: bad")
    assert lines[3]["status"] == "passed"
    assert "Traceback" in capsys.readouterr().err


def test_a_check_that_cannot_run_says_why() -> None:
    answer = answers(check(raising(NotCheckedError("one GPU"))))[1]
    assert (answer["status"], answer["reason"]) == ("skipped", "one GPU")


def test_a_difference_above_its_bound_fails_with_both_numbers() -> None:
    def run(place: Place) -> Facts:
        differences = Differences()
        differences.add("loss", 0.5, 0.25)
        differences.add("boxes", 0.1, 0.25)
        return differences.checked()

    answer = answers(check(run))[1]
    assert (answer["status"], answer["reason"]) == ("failed", "loss 0.5 above 0.25")
    assert answer["facts"]["loss"] == 0.5
    assert answer["facts"]["boxes: bound"] == 0.25


def test_not_a_number_fails_and_is_a_word_in_json() -> None:
    def run(place: Place) -> Facts:
        differences = Differences()
        differences.add("loss", float("nan"), 1.0)
        return differences.checked()

    answer = answers(check(run))[1]
    assert (answer["status"], answer["facts"]["loss"]) == ("failed", "nan")


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA error: an illegal memory access"), AcceleratorError("device-side assert")],
    ids=["runtime", "accelerator"],
)
def test_nothing_runs_after_the_device_is_dead(error: Exception) -> None:
    lines = answers(check(raising(error)), check(lambda place: {}, "b"))
    assert [line.get("status") for line in lines] == [None, "failed"]


def test_lack_of_memory_leaves_the_device_alive() -> None:
    lines = answers(
        check(raising(OutOfMemoryError("CUDA out of memory"))), check(lambda place: {}, "b")
    )
    assert lines[-1]["status"] == "passed"


def test_what_a_check_prints_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def run(place: Place) -> Facts:
        print("noise")
        sys.stdout.write("noise")
        return {}

    answers(check(run))
    assert capsys.readouterr().out == ""


def test_an_error_without_text_has_a_reason() -> None:
    assert first_line(ValueError()) == "ValueError: no text"


def test_the_list_names_every_check_once() -> None:
    lines = io.StringIO()
    assert main(["--list", "--device", "cpu"], lines) == 0
    listed = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert len({one["check"] for one in listed}) == len(listed) > 0
    assert all(set(one) == {"check", "group", "seconds"} for one in listed)
    assert sum(one["seconds"] for one in listed) <= 240


def test_an_unknown_check_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--only", "nothing"], sys.stdout) == 2
    assert "there is no check 'nothing'" in capsys.readouterr().err
