"""Figures of a metric during pre-training, from snapshots that were evaluated."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.drawing.figure import (
    Drawn,
    Identity,
    Line,
    LinePanel,
    Material,
    Picture,
    Point,
)
from benchmarks.drawing.kinds import (
    Kind,
    accuracy_label,
    distinct_runs,
    evaluation_sentences,
    is_published_run,
    kind_of,
    line_key,
    mean_point,
    number_of,
    pretraining_sentences,
    range_words,
    runs_sentence,
)
from benchmarks.drawing.order import (
    largest_noise,
    num_test_images,
    order_words,
    ranked,
    share_of_tested,
)
from benchmarks.drawing.pictures import captioned, numbered, pretrain_and_follow
from benchmarks.pages.records import Model, Result

MOST_MARKED = 30
"""Most points of a line whose points have markers."""


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
        return pretrain_and_follow(recipes, self.task) if recipes else []

    def _lines(
        self, own: Mapping[str, Sequence[Result]]
    ) -> dict[str, dict[float, Sequence[Result]]]:
        """Return the snapshots of each variant by epoch: of its longest, then newest line.

        A snapshot that has two names counts once.
        """
        lines: dict[str, dict[float, Sequence[Result]]] = {}
        for label in (label for label in self.variants if label in own):
            runs: dict[tuple[str, ...], dict[float, list[Result]]] = {}
            for result in own[label]:
                epochs = runs.setdefault(line_key(result, ()), {})
                epochs.setdefault(float(result.model.epochs), []).append(result)
            best = max(runs.values(), key=lambda run: (len(run), _newest(run)))
            if len(best) > 1:
                lines[label] = {epoch: distinct_runs(rs) for epoch, rs in sorted(best.items())}
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

    def _picture(
        self, kind: Kind, lines: Mapping[str, Mapping[float, Sequence[Result]]]
    ) -> Picture:
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
            marked=max(len(line.points) for line in drawn) <= MOST_MARKED,
        )
        absent = [label for label in self.variants if label not in lines]
        return captioned(
            self,
            panel,
            [
                *pretraining_sentences(models, ()),
                *_unfinished(models),
                *self._order(drawn, lines),
                *evaluation_sentences(results),
                runs_sentence([p for line in drawn for p in line.points], results),
                *([f"Not run: {', '.join(absent)}."] if absent else []),
            ],
            exact=self._exact(lines),
            header=("series", "epoch", "top1", "standard_deviation", "runs"),
            rows=[(line.label, *point_words(point)) for line in drawn for point in line.points],
        )

    def _order(
        self,
        drawn: Sequence[Line],
        lines: Mapping[str, Mapping[float, Sequence[Result]]],
    ) -> list[str]:
        """Return sentences on the order of the lines' means over the epochs that all have."""
        common = set.intersection(*({point.x for point in line.points} for line in drawn))
        if len(drawn) < 2 or not common:
            return []
        counts = {num_test_images(r) for line in lines.values() for rs in line.values() for r in rs}
        (number,) = counts if len(counts) == 1 else (None,)
        means = {
            line.label: share_of_tested(
                statistics.fmean(point.y for point in line.points if point.x in common),
                [r for x, rs in lines[line.label].items() if x in common for r in rs],
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
            own = 2 * max(mean.error for mean in means.values())
            words.append(
                f"Two standard errors at {number:,} test images are {own:.1f} points, "
                f"{largest_noise(means):.1f} of a difference."
            )
        return words


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
