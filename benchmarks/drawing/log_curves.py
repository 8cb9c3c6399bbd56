"""Figures of what runs log during pre-training: a panel per metric, a line per method."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from benchmarks.drawing.figure import (
    Drawn,
    Figure,
    Line,
    LinePanel,
    Material,
    Picture,
    TrainingLog,
)
from benchmarks.drawing.kinds import Kind, largest_noise, order_words, ranked
from benchmarks.drawing.logs import NUM_PARTS, are_single, last_epoch_of, points_of
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    point_words,
    pretrain,
    ranked_pictures,
    seed_words,
)
from benchmarks.drawing.progress import MOST_MARKED
from benchmarks.pages.differences import Sample, Score


@dataclass(frozen=True, kw_only=True)
class LogCurves(Figure):
    """Metrics of runs' logs over the epochs, a panel per metric and a line per method."""

    metrics: Mapping[str, str]
    """Label of the y axis by the name of the metric in the log."""
    methods: Mapping[str, str]
    """Label of the line by method."""
    recipes: Mapping[str, str]
    """The paper's recipe by method."""
    last_step_only: Mapping[str, tuple[str, ...]]
    """Metrics, by method, that a reading holds of the last of its steps only."""
    same: str
    """Setting that all runs must share because it changes the meaning of a metric."""
    stated_ends: Mapping[str, float]
    """Stated value of the last metric at the end of the run, by method."""

    def is_published(self, one: TrainingLog) -> bool:
        """Return whether a log is that of an unchanged recipe of the paper."""
        return one.model.recipe in self.recipes.values() and not one.model.changed

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs of which both methods have a log."""
        kinds: dict[tuple[str, str, str], dict[str, list[TrainingLog]]] = {}
        for log in material.logs:
            model = log.model
            if model.method in self.methods:
                kind = model.data, model.arch, str(model.settings.get("epochs"))
                kinds.setdefault(kind, {}).setdefault(model.method, []).append(log)
        candidates, problems = [], []
        for kind, own in sorted(kinds.items(), reverse=True):
            logs = _most_alike(own)
            if problem := self._problem([log for each in logs.values() for log in each]):
                problems.append(problem)
            elif logs.keys() == self.methods.keys():
                candidates.append(
                    Candidate((), Kind("", "", "", (), kind[1:]), self._picture(logs))
                )
        return ranked_pictures(candidates, problems)

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the paper's runs whose log is not there."""
        there = {log.model.recipe for log in material.logs if not log.model.changed}
        missing = [recipe for recipe in self.recipes.values() if recipe not in there]
        logs = " ".join(f"runs/{recipe}" for recipe in missing)
        runs = [pretrain(recipe) for recipe in missing]
        return [*runs, f"python -m benchmarks.figures --logs {logs}"] if missing else []

    def _problem(self, logs: Sequence[TrainingLog]) -> str:
        """Return a sentence on what these logs lack; empty if they can be drawn."""
        for log in logs:
            missing = [name for name in self.metrics if not any(name in line for line in log.lines)]
            if missing:
                return (
                    f"the log of {log.name} has no {', '.join(missing)}; pre-train it with the "
                    f"other method's value: {self._command(log, logs)}"
                )
        values = {str(log.model.settings.get(self.same)): log.name for log in logs}
        if len(values) > 1:
            words = ", ".join(f"{value} in {name}" for value, name in sorted(values.items()))
            return f"runs with different {self.same} cannot stand side by side: {words}"
        return ""

    def _command(self, log: TrainingLog, every: Sequence[TrainingLog]) -> str:
        """Return the command of a run with the setting that the other runs have."""
        values = [other.model.settings.get(self.same) for other in every]
        value = next((value for value in values if value), "VALUE")
        option = self.same.rpartition(".")[2].replace("_", "-")
        start = f"python -m pretrain {log.model.recipe} --{option} {value}"
        return f"{start} --data DATA --out runs/{log.name}"

    def _picture(self, logs: Mapping[str, Sequence[TrainingLog]]) -> Picture:
        lines = {
            name: [
                Line(
                    label=label,
                    points=points_of(
                        logs[method], name, last_step=name in self.last_step_only.get(method, ())
                    ),
                )
                for method, label in self.methods.items()
            ]
            for name in self.metrics
        }
        panels = [
            LinePanel(
                title=f"({letter})",
                x_label="epoch",
                y_label=label,
                lines=tuple(lines[name]),
                marked=max(len(line.points) for line in lines[name]) <= MOST_MARKED,
            )
            for letter, (name, label) in zip("abcdefgh", self.metrics.items(), strict=False)
        ]
        return captioned(
            self,
            panels,
            {label: logs[method] for method, label in self.methods.items()},
            after=self._sentences(logs, lines),
            header=("metric", "series", "epoch", "mean", "standard_deviation", "runs"),
            rows=[
                (name, line.label, *point_words(point))
                for name, own in lines.items()
                for line in own
                for point in line.points
            ],
        )

    def _sentences(
        self, logs: Mapping[str, Sequence[TrainingLog]], lines: Mapping[str, Sequence[Line]]
    ) -> Iterable[str]:
        counts = ", ".join(f"{label} {len(logs[method])}" for method, label in self.methods.items())
        seeds = seed_words(log.made_by.get("seed") for own in logs.values() for log in own)
        yield f"Number of runs: {counts}; {seeds}."
        settings = next(iter(logs.values()))[0].model.settings
        name = self.same.rpartition(".")[2].replace("_", " ")
        yield f"Both with {name} {settings.get(self.same)}."
        yield self._points_sentence(logs)
        yield from self._shapes(lines)
        *_, last = self.metrics
        ends = ", ".join(f"{line.label} {line.points[-1].y:.2f}" for line in lines[last])
        stated = ", ".join(f"{self.methods[m]} {value:g}" for m, value in self.stated_ends.items())
        yield f"Last points, {self.metrics[last]}: {ends}."
        yield from self._end(logs, last)
        yield f"Stated by the paper for the end: {stated}."

    def _points_sentence(self, logs: Mapping[str, Sequence[TrainingLog]]) -> str:
        if all(map(are_single, logs.values())):
            counts = sorted({len(own[0].lines) for own in logs.values()})
            text = (
                f"Each point is one of {' or '.join(map(str, counts))} readings, a mean over the "
                "steps since the one before, and stands at their middle"
            )
        else:
            text = (
                f"Each point is a mean over at most one of {NUM_PARTS} parts of the run, and "
                "stands at its middle"
            )
        for method, names in self.last_step_only.items():
            what = " and ".join(self.metrics[name] for name in names)
            text += f"; {self.methods[method]}'s {what} is measured at a reading's last step only"
        return f"{text}."

    def _shapes(self, lines: Mapping[str, Sequence[Line]]) -> Iterable[str]:
        """Yield sentences on the course of the first metric and on which line is above."""
        first, *others = self.metrics
        courses = []
        for line in lines[first]:
            low = min(line.points, key=lambda point: point.y)
            courses.append(
                f"{line.label} {line.points[0].y:.2f} at first, {low.y:.2f} at its lowest (epoch "
                f"{low.x:.2g}), {line.points[-1].y:.2f} at last"
            )
        yield f"{self.metrics[first].capitalize()}: {'; '.join(courses)}."
        for name in others:
            one, two = lines[name]
            if len(one.points) == len(two.points):
                pairs = zip(one.points, two.points, strict=True)
                above = sum(own.y < other.y for own, other in pairs)
                count = len(one.points)
                where, number = ("above", above) if 2 * above >= count else ("below", count - above)
                yield (
                    f"{self.metrics[name].capitalize()}: {two.label} {where} {one.label} at "
                    f"{number} of {count} points."
                )

    def _end(self, logs: Mapping[str, Sequence[TrainingLog]], name: str) -> Iterable[str]:
        """Yield sentences on a metric's mean over the last epoch, which the tables judge."""
        ends = {method: [last_epoch_of(log, name) for log in own] for method, own in logs.items()}
        known = {m: [end for end in own if end] for m, own in ends.items()}
        if not all(known.values()):
            return
        ordered = sorted(known, key=lambda method: -self.stated_ends[method])
        measured = {
            self.methods[m]: Score(
                mean=statistics.fmean(end.value for end in known[m]),
                sample=Sample("top1", num_images=sum(end.num_images for end in known[m])),
            )
            for m in ordered
        }
        first = min(end.first_step for own in known.values() for end in own)
        yield (
            f"Over the last epoch (readings from step {first} on), {self.metrics[name]}: "
            f"{ranked(measured, '.2f')}; the paper's order is {', '.join(measured)}."
        )
        noise = largest_noise(measured)
        tail = "" if math.isnan(noise) else f" (two binomial standard errors: {noise:.1f} points)"
        yield f"Order: {order_words(measured)}{tail}."


def _most_alike(logs: Mapping[str, Sequence[TrainingLog]]) -> dict[str, list[TrainingLog]]:
    """Return for each method the logs of equal settings, so that methods share most of them."""
    groups: list[list[list[TrainingLog]]] = []
    for own in logs.values():
        alike: dict[str, list[TrainingLog]] = {}
        for log in own:
            settings = json.dumps(log.model.settings, sort_keys=True, default=str)
            alike.setdefault(f"{log.model.precision} {settings}", []).append(log)
        groups.append([alike[key] for key in sorted(alike)])

    def num_shared(chosen: tuple[list[TrainingLog], ...]) -> tuple[int, int]:
        first, *others = (group[0].model.settings.items() for group in chosen)
        shared = [item for item in first if all(item in other for other in others)]
        return len(shared), sum(map(len, chosen))

    best: tuple[list[TrainingLog], ...] = max(product(*groups), key=num_shared)
    return dict(zip(logs, best, strict=True))
