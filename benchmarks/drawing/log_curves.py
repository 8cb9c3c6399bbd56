"""Figures of what runs log during pre-training: a panel per metric, a line per method."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Figure, Line, Material, Picture, TrainingLog
from benchmarks.drawing.kinds import is_unchanged
from benchmarks.drawing.logs import NUM_PARTS, points_of
from benchmarks.drawing.panels import LinePanel
from benchmarks.drawing.pictures import (
    best_picture,
    captioned,
    point_words,
    seed_words,
)
from benchmarks.results.records import grouped


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
        return one.run.recipe in self.recipes.values() and is_unchanged(one.run)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs of which all methods have a log."""
        # a run that was kept under two names counts once
        runs = {json.dumps([log.made_by, log.lines], default=str): log for log in material.logs}
        logs = [log for log in runs.values() if log.run.method in self.methods]
        problems = {log.name: self._problem(log) for log in logs}
        kinds = grouped((self._kind(log), log) for log in logs if not problems[log.name])
        candidates = []
        for kind, own in kinds.items():
            by_method = grouped((log.run.method, log) for log in own)
            if by_method.keys() == self.methods.keys():
                alike = {method: _most_alike(each) for method, each in by_method.items()}
                candidates.append((kind, self._picture(alike)))
        return best_picture(candidates, problems.values())

    def needed(self, material: Material) -> Sequence[str]:
        """Return the recipes whose log is not there."""
        there = {log.run.recipe for log in material.logs if is_unchanged(log.run)}
        missing = (recipe for recipe in self.recipes.values() if recipe not in there)
        return [f"{recipe}: its log, kept by --logs" for recipe in missing]

    def _kind(self, log: TrainingLog) -> tuple[str, str, str, str]:
        """Return what runs of one picture share."""
        settings = log.run.settings
        length, same = str(settings.get("epochs")), str(settings.get(self.same))
        return log.run.data, log.run.arch, length, same

    def _problem(self, log: TrainingLog) -> str:
        """Return a sentence on what a log lacks; empty if it can be drawn."""
        missing = [name for name in self.metrics if not any(name in line for line in log.lines)]
        if not missing:
            return ""
        option = self.same.rpartition(".")[2].replace("_", "-")
        return (
            f"the log of {log.name} has no {', '.join(missing)}; pre-train it with the other "
            f"method's --{option}, which is above 0"
        )

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
            LinePanel(title=f"({letter})", x_label="epoch", y_label=label, lines=tuple(lines[name]))
            for letter, (name, label) in zip("abcdefgh", self.metrics.items(), strict=False)
        ]
        return captioned(
            self,
            panels,
            {label: logs[method] for method, label in self.methods.items()},
            findings=self._sentences(logs),
            header=("metric", "series", "epoch", "mean", "standard_deviation", "runs"),
            rows=[
                (name, line.label, *point_words(point))
                for name, own in lines.items()
                for line in own
                for point in line.points
            ],
        )

    def _sentences(self, logs: Mapping[str, Sequence[TrainingLog]]) -> list[str]:
        counts = ", ".join(f"{label} {len(logs[method])}" for method, label in self.methods.items())
        seeds = seed_words(log.made_by.get("seed") for own in logs.values() for log in own)
        settings = next(iter(logs.values()))[0].run.settings
        same = self.same.rpartition(".")[2].replace("_", " ")
        points = (
            "Each point is a mean over the steps of a reading, or of several where there are more "
            f"than {NUM_PARTS}, and stands at their middle"
        )
        for method, names in self.last_step_only.items():
            what = " and ".join(self.metrics[name] for name in names)
            points += f"; {self.methods[method]}'s {what} is measured at a reading's last step only"
        stated = ", ".join(f"{self.methods[m]} {value:g}" for m, value in self.stated_ends.items())
        return [
            f"Number of runs: {counts}; {seeds}.",
            f"All with {same} {settings.get(self.same)}.",
            f"{points}.",
            f"The paper states for the end, {[*self.metrics.values()][-1]}: {stated}; ours stand "
            "beside it in tables/stated.md.",
        ]


def _most_alike(logs: Sequence[TrainingLog]) -> list[TrainingLog]:
    """Return the largest group of logs with equal settings, whose mean is drawn."""
    alike = grouped(
        (json.dumps([log.run.precision, log.run.settings], sort_keys=True, default=str), log)
        for log in logs
    )
    return max(alike.values(), key=len)
