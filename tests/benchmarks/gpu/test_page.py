"""The page of a check of GPUs."""

from typing import Any

from benchmarks.gpu.checks import Answer, Status
from benchmarks.gpu.page import Machine, render

MACHINE = Machine(
    device="2 x A100", gpu="A100", software="torch 2", commit="abc", date="2026-11-22"
)


def answer(check: str, status: Status = "passed", reason: str = "", **facts: Any) -> Answer:
    return Answer(
        command="c",
        check=check,
        group="methods",
        status=status,
        seconds=1.0,
        reason=reason,
        facts=facts,
    )


def test_checks_with_one_reason_share_a_line_and_failures_come_first() -> None:
    answers = [
        answer("a", "skipped", "one GPU"),
        answer("b", "failed", "loss differs"),
        answer("c", "skipped", "one GPU"),
    ]
    lines = render(MACHINE, answers, []).splitlines()
    assert "2 x A100; torch 2; commit abc; 2026-11-22." in lines
    assert "**1 failed, 2 skipped**" in lines
    assert lines.index("- methods: b: loss differs") < lines.index("- methods: a, c: one GPU")


def test_quantities_stand_beside_their_bounds() -> None:
    facts: dict[str, Any] = {"loss": 1e-7, "loss: bound": 1e-6}
    page = render(MACHINE, [answer("a", **facts)], [])
    cells = [[part.strip() for part in line.split("|")] for line in page.splitlines()]
    assert ["", "a", "loss", "1e-07", "1e-06", ""] in cells


def test_many_measured_facts_have_a_line_each() -> None:
    few = render(MACHINE, [answer("step of a", "measured", images_per_s=2.0)], [])
    assert "| step of a |" in few
    facts: dict[str, Any] = {f"ms {number}": float(number) for number in range(20)}
    steps = [answer("step of a", "measured", **facts), answer("step of b", "measured")]
    many = render(MACHINE, steps, [])
    assert "| step of a | step of b |" in many
    assert sum(line.startswith("| ms ") for line in many.splitlines()) == 20


def test_checks_without_an_answer_are_named() -> None:
    assert "The time was over: x, y." in render(MACHINE, [], ["x", "y"])
