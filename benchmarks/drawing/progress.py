"""Figures of a metric during pre-training: of snapshots that were evaluated, or of runs' logs."""

import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing import commands
from benchmarks.drawing.figure import (
    Drawn,
    Identity,
    Line,
    LinePanel,
    Material,
    Picture,
    Point,
    TrainingLog,
)
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    evaluation_sentences,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    number_of,
    pretraining_sentences,
    runs_sentence,
)
from benchmarks.drawing.pictures import captioned, numbered
from benchmarks.pages.records import Model, Result, model_of

NUM_PARTS = 50
"""Most points of a log's line: means over equal parts of the run."""


@dataclass(frozen=True, kw_only=True)
class SnapshotCurves(Identity):
    """Accuracy of snapshots over the epochs of pre-training, a line per variant."""

    task: str
    protocol: str
    """Protocol of the paper, without version."""
    variants: Mapping[str, str]
    """Recipe by the line's label, from what the paper finds fastest to slowest."""

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs with at least two evaluated snapshots."""
        kinds: dict[Kind, dict[str, list[Result]]] = {}
        labels = {recipe: label for label, recipe in self.variants.items()}
        for result in material.snapshots:
            label = labels.get(result.model.recipe)
            if label and result.task == self.task and result.model.epochs:
                length = str(result.model.settings.get("epochs", ""))
                kind = kind_of(result, length=length)
                kinds.setdefault(kind, {}).setdefault(label, []).append(result)
        found = {kind: lines for kind, own in kinds.items() if (lines := self._lines(own))}
        order = sorted(found, key=lambda kind: self._rank(found[kind]), reverse=True)
        pictures = [self._picture(kind, found[kind]) for kind in order]
        return Drawn(pictures=numbered(self.file_name, pictures, order))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the variants without a snapshot of the paper's run."""
        recipes = [
            recipe
            for recipe in self.variants.values()
            if not any(
                r.task == self.task and is_published_run(r, [recipe], self.protocol)
                for r in material.snapshots
            )
        ]
        return commands.pretrain_and_follow(recipes, self.task) if recipes else []

    def _lines(self, own: Mapping[str, Sequence[Result]]) -> dict[str, dict[float, list[Result]]]:
        """Return the snapshots of each variant by epoch: of its longest, then newest line."""
        lines = {}
        for label in (label for label in self.variants if label in own):
            runs: dict[tuple[str, ...], dict[float, list[Result]]] = {}
            for result in own[label]:
                epochs = runs.setdefault(line_key(result, ()), {})
                epochs.setdefault(float(result.model.epochs), []).append(result)
            best = max(runs.values(), key=lambda run: (len(run), _newest(run)))
            if len(best) > 1:
                lines[label] = dict(sorted(best.items()))
        return lines

    def _rank(self, lines: Mapping[str, Mapping[float, Sequence[Result]]]) -> tuple[bool, int, str]:
        return self._exact(lines), len(lines), max(map(_newest, lines.values()))

    def _exact(self, lines: Mapping[str, Mapping[float, Sequence[Result]]]) -> bool:
        return all(
            is_published_run(result, self.variants.values(), self.protocol)
            for line in lines.values()
            for results in line.values()
            for result in results
        )

    def _picture(self, kind: Kind, lines: Mapping[str, Mapping[float, list[Result]]]) -> Picture:
        drawn = [
            Line(
                label=label,
                points=tuple(
                    mean_point(x, [number_of(r, "top1") for r in rs]) for x, rs in line.items()
                ),
            )
            for label, line in lines.items()
        ]
        results = [r for line in lines.values() for rs in line.values() for r in rs]
        models = {label: [rs[0].model for rs in line.values()] for label, line in lines.items()}
        panel = LinePanel(
            x_label="epoch of pre-training",
            y_label=accuracy_label(kind.task),
            lines=tuple(drawn),
            marked=max(len(line.points) for line in drawn) <= 30,
        )
        absent = [label for label in self.variants if label not in lines]
        return captioned(
            self,
            panel,
            [
                *pretraining_sentences(models, ()),
                *_unfinished(models),
                *self._order(drawn),
                *evaluation_sentences(results),
                runs_sentence([p for line in drawn for p in line.points], results),
                *([f"Not run: {', '.join(absent)}."] if absent else []),
            ],
            exact=self._exact(lines),
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in drawn for point in line.points],
        )

    def _order(self, lines: Sequence[Line]) -> list[str]:
        """Return a sentence on the order of the lines' means over the epochs that all have."""
        common = set.intersection(*({point.x for point in line.points} for line in lines))
        if len(lines) < 2 or not common:
            return []
        means = {
            line.label: statistics.fmean(point.y for point in line.points if point.x in common)
            for line in lines
        }
        words = ", ".join(f"{label} {mean:.1f}" for label, mean in means.items())
        ordered = sorted(means, key=lambda label: -means[label])
        same = "the paper's order" if ordered == list(means) else "the paper has another order"
        return [f"Means over epochs: {words}; {same}: {', '.join(means)}."]


def point_words(point: Point) -> tuple[str, ...]:
    """Return a point as words of a CSV file."""
    spread = "" if point.spread is None else f"{point.spread:.4f}"
    return f"{point.x:g}", f"{point.y:.4f}", spread, str(point.num_runs)


def _newest(run: Mapping[float, Sequence[Result]]) -> str:
    return max(result.finished for results in run.values() for result in results)


def _unfinished(models: Mapping[str, Sequence[Model]]) -> list[str]:
    """Return a sentence on lines whose last snapshot is not that of the end of the run."""
    parts = [
        f"{label} {float(own[-1].epochs):g} of {own[-1].settings['epochs']:g}"
        for label, own in models.items()
        if float(own[-1].epochs) < float(own[-1].settings.get("epochs", 0))
    ]
    return [f"Runs that had not ended, epochs: {', '.join(parts)}."] if parts else []


@dataclass(frozen=True, kw_only=True)
class LogCurves(Identity):
    """Metrics of runs' logs over the epochs, a panel per metric and a line per method."""

    metrics: Mapping[str, str]
    """Label of the y axis by the name of the metric in the log."""
    methods: Mapping[str, str]
    """Label of the line by method."""
    recipes: Mapping[str, str]
    """The paper's recipe by method."""
    same: str
    """Setting that all runs must share because it changes the meaning of a metric."""
    stated_ends: Mapping[str, float]
    """Stated value of the last metric at the end of the run, by method."""

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of runs of which both methods have a log."""
        pictures, problems, kinds = [], [], []
        for kind, logs in sorted(self._by_kind(material).items(), reverse=True):
            if problem := self._problem(logs):
                problems.append(problem)
            elif set(logs) == set(self.methods):
                pictures.append(self._picture(logs))
                kinds.append(Kind("", "", "", (), kind[1:]))
        order = sorted(range(len(kinds)), key=lambda i: "Not the" in pictures[i].caption[1])
        pictures, kinds = [pictures[i] for i in order], [kinds[i] for i in order]
        return Drawn(pictures=numbered(self.file_name, pictures, kinds), problems=tuple(problems))

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the paper's runs whose log is not there."""
        there = {
            log.made_by.get("recipe") for log in material.logs if not log.made_by.get("changed")
        }
        missing = [recipe for recipe in self.recipes.values() if recipe not in there]
        logs = " ".join(f"runs/{recipe}" for recipe in missing)
        runs = [commands.pretrain(recipe) for recipe in missing]
        return [*runs, f"python -m benchmarks.figures --logs {logs}"] if missing else []

    def _by_kind(self, material: Material) -> dict[tuple[str, ...], dict[str, list[TrainingLog]]]:
        kinds: dict[tuple[str, ...], dict[str, list[TrainingLog]]] = {}
        for log in material.logs:
            method = str(log.made_by.get("method"))
            if method in self.methods:
                settings = log.made_by.get("settings") or {}
                kind = (
                    str(log.made_by.get("data")),
                    str(settings.get("arch")),
                    str(settings.get("epochs")),
                )
                kinds.setdefault(kind, {}).setdefault(method, []).append(log)
        return {kind: _most_alike(own) for kind, own in kinds.items()}

    def _problem(self, logs: Mapping[str, Sequence[TrainingLog]]) -> str:
        """Return a sentence on what these logs lack; empty if they can be drawn."""
        every = [log for own in logs.values() for log in own]
        for log in every:
            missing = [name for name in self.metrics if not any(name in line for line in log.lines)]
            if missing:
                option = self.same.replace("_", "-")
                return (
                    f"the log of {log.name} has no {', '.join(missing)}; pre-train it with "
                    f"--{option} above 0, as the other method"
                )
        values = {str(log.made_by["settings"].get(self.same)): log.name for log in every}
        if len(values) > 1:
            words = ", ".join(f"{value} in {name}" for value, name in sorted(values.items()))
            return f"runs with different {self.same} cannot stand side by side: {words}"
        return ""

    def _picture(self, logs: Mapping[str, Sequence[TrainingLog]]) -> Picture:
        exact = all(self._is_published(log) for own in logs.values() for log in own)
        lines = {
            name: tuple(
                Line(label=label, points=_mean_line(logs[method], name))
                for method, label in self.methods.items()
            )
            for name in self.metrics
        }
        panels = [
            LinePanel(
                title=f"({letter})",
                x_label="epoch",
                y_label=label,
                lines=lines[name],
                marked=False,
            )
            for letter, (name, label) in zip("abcdefgh", self.metrics.items(), strict=False)
        ]
        models = {
            label: [_model(log) for log in logs[method]] for method, label in self.methods.items()
        }
        rows = [
            (name, line.label, *point_words(point))
            for name, own in lines.items()
            for line in own
            for point in line.points
        ]
        return captioned(
            self,
            panels,
            [*pretraining_sentences(models, ()), *self._sentences(logs, lines)],
            exact=exact,
            header=("metric", "series", "epoch", "mean", "standard_deviation", "runs"),
            rows=rows,
        )

    def _sentences(
        self, logs: Mapping[str, Sequence[TrainingLog]], lines: Mapping[str, Sequence[Line]]
    ) -> Iterable[str]:
        counts = ", ".join(f"{label} {len(logs[method])}" for method, label in self.methods.items())
        seeds = sorted({str(log.made_by.get("seed")) for own in logs.values() for log in own})
        yield f"Number of runs: {counts}; seeds {', '.join(seeds)}."
        settings = next(iter(logs.values()))[0].made_by["settings"]
        name = self.same.rpartition(".")[2].replace("_", " ")
        yield f"Both with {name} {settings.get(self.same)}. Points are means over parts of the run."
        *_, last = self.metrics
        ends = ", ".join(f"{line.label} {line.points[-1].y:.2f}" for line in lines[last])
        stated = ", ".join(f"{self.methods[m]} {value:g}" for m, value in self.stated_ends.items())
        yield f"At the end, {self.metrics[last]}: {ends}; stated by the paper: {stated}."

    def _is_published(self, log: TrainingLog) -> bool:
        return log.made_by.get("recipe") in self.recipes.values() and not log.made_by.get("changed")


def _most_alike(logs: Mapping[str, Sequence[TrainingLog]]) -> dict[str, list[TrainingLog]]:
    """Return for each method the logs of equal settings, so that methods share most of them."""
    groups: list[list[list[TrainingLog]]] = []
    for own in logs.values():
        alike: dict[str, list[TrainingLog]] = {}
        for log in own:
            settings = json.dumps(log.made_by["settings"], sort_keys=True, default=str)
            alike.setdefault(f"{log.made_by.get('precision')} {settings}", []).append(log)
        groups.append([alike[key] for key in sorted(alike)])
    best = max(itertools.product(*groups), key=_num_shared)
    return dict(zip(logs, best, strict=True))


def _num_shared(groups: Sequence[Sequence[TrainingLog]]) -> tuple[int, int]:
    """Return how many settings the first logs of the groups share, and how many logs there are."""
    settings = [group[0].made_by["settings"].items() for group in groups]
    shared = [item for item in settings[0] if all(item in other for other in settings)]
    return len(shared), sum(map(len, groups))


def _mean_line(logs: Sequence[TrainingLog], name: str) -> tuple[Point, ...]:
    """Return means over equal parts of the runs; several runs give a standard deviation."""
    length = float(logs[0].made_by["settings"]["epochs"])
    num_parts = min(NUM_PARTS, *(len(log.lines) for log in logs))
    parts: dict[int, list[float]] = {}
    for log in logs:
        own: dict[int, list[float]] = {}
        for line in log.lines:
            if name in line:
                place = math.ceil(line["epoch"] / length * num_parts - 1e-9)
                own.setdefault(min(max(place, 1), num_parts), []).append(line[name])
        for place, values in own.items():
            parts.setdefault(place, []).append(sum(values) / len(values))
    return tuple(
        mean_point((place - 0.5) * length / num_parts, values)
        for place, values in sorted(parts.items())
    )


def _model(log: TrainingLog) -> Model:
    settings = log.made_by.get("settings") or {}
    content = {
        "name": log.name,
        "sha256": "",
        "arch": settings.get("arch", ""),
        "stem": settings.get("stem", ""),
        "made_by": log.made_by,
    }
    return model_of(content)
