"""Calls are counted, and the largest batch that fits is measured."""

import pytest
import torch

from transfer.checks.report import Facts
from transfer.checks.speed import first_that_fits, seconds_per_call, with_peak_memory

CPU = torch.device("cpu")


def test_warm_up_is_not_part_of_the_calls_but_made() -> None:
    calls: list[int] = []
    assert seconds_per_call(lambda: calls.append(0), CPU, warm_up=2, calls=3) >= 0
    assert len(calls) == 5


def test_a_batch_beyond_the_memory_is_halved() -> None:
    tried: list[int] = []

    def measure(images: int) -> Facts:
        tried.append(images)
        if images > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"images": float(images)}

    assert first_that_fits(measure, (16, 8, 4, 2)) == {"images": 4.0}
    assert tried == [16, 8, 4]


def test_the_smallest_batch_may_not_fit_either() -> None:
    def measure(images: int) -> Facts:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        first_that_fits(measure, (4, 2))


def test_a_cpu_has_no_peak_memory() -> None:
    assert with_peak_memory(lambda: "result", CPU) == ("result", 0.0)
