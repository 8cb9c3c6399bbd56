"""The lines that checks print, and what becomes of errors."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pretrain.checks.report import Line, Outcome, is_cuda_error, judged, run_check, skipped

LINE = Line(name="a check", group="methods", seconds=1.0)


def lines_of(check: Callable[[], Outcome]) -> tuple[bool, list[dict[str, Any]]]:
    written: list[str] = []
    usable = run_check(LINE, check, written.append)
    return usable, [json.loads(line) for line in written]


def raising(error: Exception) -> Callable[[], Outcome]:
    def check() -> Outcome:
        raise error

    return check


def test_a_check_has_a_line_before_and_one_after_it() -> None:
    usable, (begin, end) = lines_of(lambda: judged([], {"difference": 0.5}))
    assert usable
    assert begin == {"begin": "a check"}
    assert end.pop("seconds") >= 0
    assert end == {
        "check": "a check",
        "group": "methods",
        "status": "passed",
        "reason": "",
        "facts": {"difference": 0.5},
    }


def test_a_comparison_with_failures_has_failed() -> None:
    _, (_, end) = lines_of(lambda: judged(["loss is 1 apart", "and more"], {}))
    assert end["status"] == "failed"
    assert end["reason"] == "loss is 1 apart; and more"


def test_a_check_that_makes_no_sense_here_says_so() -> None:
    _, (_, end) = lines_of(lambda: skipped("needs CUDA: a CPU is never waited for"))
    assert (end["status"], end["reason"]) == ("skipped", "needs CUDA: a CPU is never waited for")


def test_an_exception_is_a_failure_of_one_line() -> None:
    usable, (_, end) = lines_of(raising(ValueError("wrong shape\nand details")))
    assert usable
    assert (end["status"], end["reason"]) == ("failed", "ValueError: wrong shape")


def test_undefined_numbers_are_written_as_words() -> None:
    _, (_, end) = lines_of(lambda: judged([], {"one": float("nan"), "other": float("inf")}))
    assert end["facts"] == {"one": "nan", "other": "inf"}


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("an illegal memory access was encountered"),
        RuntimeError("CUDA error: device-side assert triggered\nmore"),
        caused(ValueError("a batch could not be made"), RuntimeError("CUDA error: unknown")),
    ],
    ids=["its own class", "its message", "its cause"],
)
def test_after_an_error_of_cuda_the_process_is_of_no_use(error: Exception) -> None:
    usable, (_, end) = lines_of(raising(error))
    assert not usable
    assert end["status"] == "failed"


def test_a_full_memory_is_no_lasting_error() -> None:
    assert not is_cuda_error(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
