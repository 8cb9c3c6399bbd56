"""Plan numbers of seeds: python -m benchmarks.power --name A B --points 0.5.

For each common task of two checkpoints, prints the smallest difference that its test images and
runs can detect, and the number of runs that detect a true difference of --points with a probability
of 80 %. It uses the records' answers and seeds, but never their observed difference. Decide the
number of runs before you add any.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.results.chosen_table import columns_of, rows_of
from benchmarks.results.contents import results_folders
from benchmarks.results.differences import LEVEL, POWER, run_deviation
from benchmarks.results.final_screen import aligned
from benchmarks.results.numbers import Number, main_numbers, numbers_of, score_of_runs
from benchmarks.results.power import COVERAGE, PowerModel, power_model
from benchmarks.results.records import plural, read_results, require_folder
from pretrain.running.command_line import OptionError, one_line_errors, parse, run_command
from transfer.record import SIGNED_METRICS
from transfer.tasks import task_of


@dataclass(frozen=True, kw_only=True)
class Request:
    """Print detectable differences of two checkpoints, and required seeds."""

    name: tuple[str, str]
    """Names of the two checkpoints."""
    points: float = 0.5
    """Smallest true difference in points that matters to you."""
    tasks: str = ""
    """Tasks with commas between them: in1k_linear,voc07_svm@11point. All if empty."""
    results: tuple[Path, ...] = (Path("results"),)
    """Folders of records."""
    with_reference: bool = False
    """Also read the suite's own results, results/reference of a checkout."""


class Row(NamedTuple):
    """One task: detectable differences and required numbers of runs."""

    key: str
    first: Number
    second: Number
    model: PowerModel
    smallest: float
    """Smallest difference in points that the present runs detect."""
    seeds: tuple[float, float]
    """Range of runs per checkpoint that detect --points on this task."""
    seeds_of_all: tuple[float, float]
    """The same with the level divided by the number of tasks."""

    @property
    def further_hours(self) -> float:
        """Return the hours of the further runs, as long as present ones."""
        hours = 0.0
        for number in (self.first, self.second):
            further = max(0.0, self.seeds_of_all[1] - len(number.runs))
            seconds = [
                run.record.wall_s * int(run.details.get("num_processes", 1)) for run in number.runs
            ]
            hours += further * sum(seconds) / len(seconds) / 3600
        return hours


def rows_for(numbers: Sequence[Number], request: Request) -> list[Row]:
    """Return a row per task that both checkpoints have under one protocol.

    Raises OptionError without a common task.
    """
    scored = [n for n in main_numbers(numbers) if n.metric not in SIGNED_METRICS]
    backbones = rows_of(scored, request.name)
    if len(backbones) != 2:
        labels = ", ".join(backbones.values())
        raise OptionError(f"--name: expected two checkpoints, found {labels}")
    selected = [number for number in scored if number.run.identity in backbones]
    tasks = [task for task in request.tasks.split(",") if task]
    columns = columns_of(selected, [*backbones], tasks)
    pairs = [[c.numbers[b] for b in backbones] for c in columns if len(c.numbers) == 2]
    if not pairs:
        raise OptionError(f"{' and '.join(request.name)} have no common task")
    return [_row(first, second, request.points, len(pairs)) for first, second in pairs]


def _row(first: Number, second: Number, points: float, num_tasks: int) -> Row:
    key, (first_score, second_score) = (
        first.runs[0].key,
        (score_of_runs(n.runs, n.metric) for n in (first, second)),
    )
    model = power_model(first_score, second_score, first.task, seeded=task_of(key).seeded)

    def seeds(level: float) -> tuple[float, float]:
        low, high = (model.seeds_for(points, level, sigma) for sigma in model.sigmas)
        return low, high

    smallest = model.smallest()
    return Row(key, first, second, model, smallest, seeds(LEVEL), seeds(LEVEL / num_tasks))


def text_of(rows: Sequence[Row], request: Request) -> str:
    """Return the table and notes on its columns."""
    num_tasks = len(rows)
    together = f"seeds, {plural(num_tasks, 'task')}"
    table = [["task", "images", "runs", "smallest", "seeds", together, "hours"]]
    for row in rows:
        runs = [len(number.runs) for number in (row.first, row.second)]
        reached = math.isfinite(row.seeds_of_all[1])
        table.append(
            [
                row.key,
                f"{row.model.num_images:,}" if row.model.num_images else "?",
                f"{runs[0]}" if runs[0] == runs[1] else f"{runs[0]}, {runs[1]}",
                f"{row.smallest:.2f}",
                _seed_words(row.seeds, row.model),
                _seed_words(row.seeds_of_all, row.model),
                f"{row.further_hours:.2f}" if reached else "-",
            ]
        )
    lines = aligned(table, left_columns={0})
    return "\n".join([*lines, "", *_notes(rows, request)])


def _seed_words(seeds: tuple[float, float], model: PowerModel) -> str:
    if not math.isfinite(seeds[0]):
        return "none"
    if not model.seeded:
        return "enough"
    low = f"{seeds[0]:.0f}"
    if seeds[0] == seeds[1]:
        return low if model.freedom else f"{low}?"
    return f"{low} to {seeds[1]:.0f}" if math.isfinite(seeds[1]) else f"{low} or more"


def _notes(rows: Sequence[Row], request: Request) -> list[str]:
    """Return notes on the columns, assumptions, and the cheapest runs."""
    effect = f"{request.points:g} point{'' if request.points == 1 else 's'}"
    percent = f"{POWER:.0%}".replace("%", " %")
    level = f"p < {LEVEL / len(rows):.2g}"
    notes = [
        f"smallest: true difference that the present runs detect with a probability of {percent} "
        f"(p < {LEVEL}).",
        f"seeds: runs of each checkpoint that detect {effect} with {percent} on this task, and "
        f"for {plural(len(rows), 'task')} together ({level}; sufficient for Holm's correction). "
        "hours: time of the further runs, if each takes as long as the present ones.",
        "The effect is --points, not the observed difference. Decide the number of runs, then run "
        "them all: adding runs until p is small finds differences that do not exist.",
        "Seeds repeat the evaluation of these two files (heads, drawn images, order), not their "
        "pre-training: a difference of files is not yet a difference of methods.",
    ]
    if any(row.seeds[0] != row.seeds[1] for row in rows):
        notes.append(
            f"from to: the deviation is estimated from few seeds; the range corresponds to its "
            f"{COVERAGE:.0%} interval.".replace("%", " %")
        )
    for row in rows:
        if row.model.seeded and not row.model.freedom:
            stated = run_deviation(row.first.task)
            notes.append(
                f"{row.key}: one run each, so the deviation over seeds is assumed: "
                f"{stated.points:g} points ({stated.source})."
            )
        if not math.isfinite(row.seeds[0]):
            floor = row.model.smallest_of_images() if row.model.seeded else row.smallest
            reason = "" if row.model.seeded else " (the seed has no effect)"
            notes.append(
                f"{row.key}: no number of seeds{reason} detects {effect} on these test images; the "
                f"smallest detectable difference is {floor:.2f}."
            )
    reached = [row for row in rows if math.isfinite(row.seeds_of_all[1])]
    further_runs = [
        f"{row.key} {row.seeds_of_all[1]:.0f}"
        for row in reached
        if row.seeds_of_all[1] > min(len(row.first.runs), len(row.second.runs))
    ]
    if further_runs:
        hours = sum(row.further_hours for row in reached)
        notes.append(
            f"cheapest runs with {percent} on each task where it is possible: "
            f"{', '.join(further_runs)} runs of each checkpoint, {hours:.2f} more hours."
        )
    elif reached:
        notes.append("The present runs suffice on each task where it is possible.")
    return notes


@one_line_errors(ValueError, OSError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, args, description=__doc__)
    if request.points <= 0:
        raise OptionError(f"--points {request.points:g}: expected a positive difference in points")
    folders = results_folders(request.results, with_reference=request.with_reference)
    for folder in folders:
        require_folder(folder)
    results = read_results(folders[0], folders[1:])
    rows = rows_for(numbers_of(results.runs), request)
    print(text_of(rows, request))
    return 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
