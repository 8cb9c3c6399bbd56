"""Figures of a metric during pre-training, from snapshots that were evaluated."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import Drawn, Figure, Line, LinePanel, Material, Picture
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    error_of,
    evaluation_sentences,
    is_published_run,
    kind_of,
    largest_noise,
    line_key,
    mean_point,
    newest,
    num_test_images,
    number_of,
    order_words,
    pretraining_sentences,
    range_words,
    ranked,
    runs_sentence,
    share_of_tested,
)
from benchmarks.drawing.pictures import (
    Candidate,
    captioned,
    not_run,
    point_words,
    pretrain_and_follow,
    ranked_pictures,
)
from benchmarks.pages.records import Model, Result

MOST_MARKED = 30
"""Most points of a line whose points have markers."""

Curve = dict[float, tuple[Result, ...]]
"""Results of a variant's snapshots by epoch."""


@dataclass(frozen=True, kw_only=True)
class SnapshotCurves(Figure):
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
        return ranked_pictures(
            self._candidate(kind, lines)
            for kind, own in kinds.items()
            if (lines := {label: curve for label in self.variants if (curve := _curve(own, label))})
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the variants without a snapshot of the paper's run."""
        of_task = [result for result in material.snapshots if result.task == self.task]
        recipes = [
            recipe
            for recipe in self.variants.values()
            if not any(is_published_run(result, [recipe], self.protocol) for result in of_task)
        ]
        return pretrain_and_follow(recipes, self.task) if recipes else []

    def _candidate(self, kind: Kind, lines: Mapping[str, Curve]) -> Candidate:
        results = [r for curve in lines.values() for own in curve.values() for r in own]
        recipes = self.variants.values()
        exact = all(is_published_run(result, recipes, self.protocol) for result in results)
        picture = self._picture(kind, lines, results, exact=exact)
        return Candidate((exact, len(lines), newest(results)), kind, picture)

    def _picture(
        self, kind: Kind, lines: Mapping[str, Curve], results: Sequence[Result], *, exact: bool
    ) -> Picture:
        drawn = [
            Line(
                label=label,
                points=tuple(
                    mean_point(x, [number_of(r, "top1") for r in own]) for x, own in curve.items()
                ),
            )
            for label, curve in lines.items()
        ]
        models = {label: [own[0].model for own in line.values()] for label, line in lines.items()}
        panel = LinePanel(
            x_label="epoch of pre-training",
            y_label=accuracy_label(kind.task),
            lines=tuple(drawn),
            marked=max(len(line.points) for line in drawn) <= MOST_MARKED,
        )
        return captioned(
            self,
            panel,
            [
                *pretraining_sentences(models, ()),
                *_unfinished(models),
                *_order(drawn, lines, results),
                *evaluation_sentences(results),
                runs_sentence([point for line in drawn for point in line.points], results),
                *not_run(self.variants, lines),
            ],
            exact=exact,
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in drawn for point in line.points],
        )


def _curve(own: Mapping[str, Sequence[Result]], label: str) -> Curve:
    """Return the snapshots of a variant's longest, then newest line; empty if it has one only.

    A snapshot that has two names counts once.
    """
    runs: dict[tuple[str, ...], dict[float, list[Result]]] = {}
    for result in own.get(label, ()):
        epochs = runs.setdefault(line_key(result, ()), {})
        epochs.setdefault(float(result.model.epochs), []).append(result)
    best = max(
        runs.values(), key=lambda run: (len(run), max(map(newest, run.values()))), default={}
    )
    return {x: distinct_runs(best[x]) for x in sorted(best)} if len(best) > 1 else {}


def _order(
    drawn: Sequence[Line], lines: Mapping[str, Curve], results: Sequence[Result]
) -> list[str]:
    """Return sentences on the order of the lines' means over the epochs that all have."""
    common = set.intersection(*({point.x for point in line.points} for line in drawn))
    if len(drawn) < 2 or not common:
        return []
    counts = {num_test_images(result) for result in results}
    (number,) = counts if len(counts) == 1 else (None,)
    means = {
        line.label: share_of_tested(
            statistics.fmean(point.y for point in line.points if point.x in common),
            [r for x, own in lines[line.label].items() if x in common for r in own],
            "top1",
        )
        for line in drawn
    }
    words = [
        f"Means over the epochs {range_words(sorted(common))}, from the highest: "
        f"{ranked(means, '.1f')}. The paper's order, from the fastest: {', '.join(means)}.",
        f"Order: {order_words(means)}.",
    ]
    if number:
        own = 2 * max(map(error_of, means.values()))
        words.append(
            f"Two standard errors at {number:,} test images are {own:.1f} points, "
            f"{largest_noise(means):.1f} of a difference."
        )
    return words


def _unfinished(models: Mapping[str, Sequence[Model]]) -> list[str]:
    """Return a sentence on lines whose last snapshot is not that of the end of the run."""
    parts = [
        f"{label} {float(own[-1].epochs):g} of {own[-1].settings['epochs']:g}"
        for label, own in models.items()
        if float(own[-1].epochs) < float(own[-1].settings.get("epochs", 0))
    ]
    return [f"Runs that had not ended, epochs: {', '.join(parts)}."] if parts else []
