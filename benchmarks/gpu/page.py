"""The page of a check of GPUs, and the rates of plans, from the answers of all checks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.results.tables import grid
from transfer.frozen.pass_hours import Rates

INTRODUCTION = (
    "What this machine computes as the CPU does, and how fast it is. A comparison passes if its "
    "largest difference is within a bound that follows from the arithmetic. `make gpu-check` "
    "writes this page."
)

BOUND = ": bound"
"""End of the name of a fact that bounds another one."""
STEP = "step of "
"""Start of the name of a measured step, before its method."""
WAITS = {"lorac": 1}
"""Waits that a step of a method needs: its eigenvalues' solver looks whether it has failed."""
DISTANCE, SLOWEST = "times the fused floor", 3.0
"""Fact of a step, and its largest value that is no failure."""

PEAK, PEAK_AT_LEAST = "peak memory GB", "peak memory GB at least, by the estimate"
RATE, HOURS = "images/s", "hours of the recipe on this device alone"

Status = Literal["passed", "failed", "skipped", "measured"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Outcome of a test or a measurement."""

    check: str
    group: str
    """Module of the test, or "rates"."""
    status: Status
    seconds: float = 0.0
    reason: str = ""
    """Why it failed or was skipped, in one line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Differences with their bounds, or measured numbers, by name."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Machine that was checked, and its software."""

    device: str
    """Names of the GPUs and how many, or of the processor."""
    gpu: str
    """Name of the first GPU, or of the processor."""
    software: str
    """Versions of torch and of what it uses."""
    commit: str
    date: str


def complaint(check: str, facts: Mapping[str, Any]) -> str:
    """Return why a measured step is wrong: it waits, is slow, or refutes its estimate."""
    waits, allowed = facts.get("waits", 0), WAITS.get(check.removeprefix(STEP), 0)
    if STEP in check and waits > allowed:
        return f"{waits} waits for the GPU in a step, {allowed} allowed"
    peak, least = facts.get(PEAK, 0.0), facts.get(PEAK_AT_LEAST, 0.0)
    if 0 < peak < least:  # a CPU's is not measured
        return f"{PEAK} {peak:.3g}, less than the estimate of {least:.3g}"
    distance = facts.get(DISTANCE, 0.0)
    return f"{distance:.4g} {DISTANCE}, {SLOWEST:g} at most" if distance > SLOWEST else ""


def render(machine: Machine, answers: Sequence[Answer], not_run: Sequence[str]) -> str:
    """Return the page in markdown; `not_run` are the names of checks without an answer."""
    counts = Counter(answer.status for answer in answers)
    kinds: tuple[Status, ...] = ("passed", "measured", "failed", "skipped")
    summary = ", ".join(f"{counts[status]} {status}" for status in kinds if counts[status])
    summary += f", {len(not_run)} not run" if not_run else ""
    parts = [
        "# Check of GPUs",
        INTRODUCTION,
        f"{machine.device}; {machine.software}; commit {machine.commit}; {machine.date}.",
        f"**{summary or 'nothing was run'}**",
    ]
    if methods := _methods(answers):
        parts.append(grid(["method", RATE, DISTANCE, HOURS, "right or wrong"], methods).markdown())
    for status in ("failed", "skipped"):
        own = [answer for answer in answers if answer.status == status]
        lines = [f"- {one.group}: {one.check}: {one.reason}" for one in own]
        parts += [f"## {status.capitalize()}", "\n".join(lines)] * bool(own)
    if not_run:
        parts += ["## Not run", f"The time was over: {', '.join(not_run)}."]
    for group in dict.fromkeys(answer.group for answer in answers):
        facts = [
            [answer.check, name, _text(value), _text(answer.facts.get(name + BOUND))]
            for answer in answers
            if answer.group == group
            for name, value in answer.facts.items()
            if not name.endswith(BOUND)
        ]
        if facts:
            header = ["check", "quantity", "value", "bound"]
            parts += [f"## {group[0].upper()}{group[1:]}", grid(header, facts, left=2).markdown()]
    return "\n\n".join(parts) + "\n"


def _methods(answers: Sequence[Answer]) -> list[list[str]]:
    """Return a line for each method whose step was measured: its rate, and whether it is right."""
    rows = []
    for step in (answer for answer in answers if answer.check.startswith(STEP)):
        method = step.check.removeprefix(STEP)
        alike = [one.status for one in answers if one.check.endswith(f": {method}")]
        verdict = "right" if "passed" in alike else "not compared"
        verdict = "wrong" if "failed" in alike else verdict
        verdict += ", but see Failed" * (step.status == "failed")
        rows.append([method, *(_text(step.facts.get(n)) for n in (RATE, DISTANCE, HOURS)), verdict])
    return rows


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


FEATURES, PROBE, TITLE = "rate of features of ", "rate of a linear probe", "rate of "
"""Names of measurements from which plans take rates."""


def rates_of(machine: Machine, answers: Sequence[Answer]) -> Rates | None:
    """Return the rates of a machine's GPU for plans; None without any."""
    features: dict[str, dict[str, float]] = {}
    trainings: dict[str, dict[str, dict[str, float]]] = {}
    probe = 0.0
    for name, facts in ((one.check, one.facts) for one in answers if one.status == "measured"):
        if name.startswith(FEATURES):
            arch, precision = name.removeprefix(FEATURES).split(" in ")
            features.setdefault(arch, {})[precision] = facts["images/s"]
        elif name == PROBE:
            probe = facts["crops/s"]
        elif name.startswith(TITLE) and (times := _training_times(facts)):
            trainings[name.removeprefix(TITLE)] = times
    if not (features or probe or trainings):
        return None
    return Rates(
        gpu=machine.gpu,
        measured=machine.date,
        commit=machine.commit,
        features=features,
        probe_crops=probe,
        trainings=trainings,
    )


def _training_times(facts: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return images and seconds per iteration by precision, as far as they were measured."""
    return {
        precision: {
            "images": facts[f"images per pass in {precision}"],
            "seconds": facts[f"seconds per iteration in {precision}"],
        }
        for precision in ("float32", "bfloat16")
        if f"seconds per iteration in {precision}" in facts
    }
