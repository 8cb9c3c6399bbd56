"""Page of the numbers in running texts, next to our results."""

from collections.abc import Iterable
from dataclasses import replace

from benchmarks.results.differences import (
    RUN_DEVIATIONS,
    Score,
    difference,
    gain,
    mean_of_backbones,
    run_deviation,
)
from benchmarks.results.numbers import Block, Number, one_per_backbone
from benchmarks.results.published import (
    Measurement,
    Paper,
    Row,
    Statement,
    completed,
    num_test_images,
    papers,
    published_recipes,
)
from benchmarks.results.records import DECLARED, Reasons
from benchmarks.results.tables import Page, Part, declaration_notes, grid
from benchmarks.results.verdicts import norm_group_lines, pretraining_differences
from benchmarks.words import grouped

HEADER = ("where", "statement", "number", "paper", "ours", "diff.", "95 % interval", "verdict")
BEST_SETTING = "- best setting: inconclusive where the paper's value is not significantly below."


class OurResults:
    """Our results that the statements are compared with."""

    def __init__(self, numbers: Iterable[Number]) -> None:
        """Sort our numbers by backbone and recipe."""
        measured = [number for number in numbers if number.runs]
        self.block = Block(Reasons(), [n for n in measured if n.reasons.comparable])
        self.backbones = one_per_backbone(measured)
        """Backbones with any result: metrics of their pre-training need no evaluation."""

    def backbones_of(self, recipe: str, measurement: Measurement) -> list[Number]:
        """Return the rows of a recipe that may be compared."""
        rows = self.block.rows if measurement.task else self.backbones
        return [row for row in rows if row.backbone.recipe == recipe]

    def sign(self, measurement: Measurement) -> str:
        """Return the mark for a declared recipe if one of the backbones has a declared recipe."""
        recipes = measurement.recipes
        rows = (row for recipe in recipes for row in self.backbones_of(recipe, measurement))
        return DECLARED if any(row.backbone.declared for row in rows) else ""

    def score(self, statement: Statement, measurement: Measurement) -> Score | None:
        """Return our result or difference; None if a result is missing."""
        scores = []
        for recipe in measurement.recipes:
            row = _row(statement, recipe)
            by_weights = {  # further rows of a file are the same run
                ours.backbone.sha256: ours
                for ours in reversed(self.backbones_of(recipe, measurement))
                if not ours.conditions and not pretraining_differences(row, ours.backbone)
            }
            values = [v for ours in by_weights.values() if (v := self._value(ours, measurement))]
            if not values:
                return None
            scores.append(mean_of_backbones(values))
        return scores[0] if len(scores) == 1 else gain(scores[0], scores[1], _scale(measurement))

    def _value(self, row: Number, measurement: Measurement) -> Score | None:
        """Return our number.

        For metrics of pre-training, only the run-to-run deviation is known.
        """
        metric = measurement.metric
        if not measurement.task:
            value = row.backbone.last_epoch.get(metric)
            return None if value is None else Score(mean=value, metric=metric, stated_error=0.0)
        column = measurement.task, measurement.protocol
        score = self.block.number(row, column, metric).score
        if score and metric in RUN_DEVIATIONS:
            return replace(score, images="", details=(), stated_error=0.0)
        return score


def stated_page(numbers: Iterable[Number], command: str) -> Page:
    """Return the page of all papers' statements."""
    our_results = OurResults(numbers)
    page: Page = [
        "# Numbers of the running texts",
        "Numbers that the papers state outside their tables, in percent, in points for differences "
        f"and in bits for entropies. Made by `{command}`.",
    ]
    for paper in papers():
        page += _paper_parts(paper, our_results) if paper.stated else []
    return page + declaration_notes(row.backbone for row in our_results.backbones)


def _paper_parts(paper: Paper, our_results: OurResults) -> list[Part]:
    lines, missing_lines, other_lines = [], [], []
    for statement in paper.stated:
        for measurement in statement.measured:
            ours = our_results.score(statement, measurement)
            lines.append(_line(statement, measurement, ours, our_results.sign(measurement)))
            missing_lines += [] if ours else [_missing_line(measurement)]
        if statement.swept:
            best, missing = _best_setting(statement, our_results)
            lines.append(best)
            missing_lines += missing
        compared = {m.value for m in (*statement.measured, *statement.swept.values())}
        uncompared = ", ".join(
            f"{key} {_value_text(value)}"
            for key, value in statement.values.items()
            if key not in compared
        )
        if uncompared:
            other_lines.append(f"- {statement.where}, {statement.what}: {uncompared}")
    page_parts: list[Part] = [
        f"## {paper.name}",
        f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}.",
    ]
    if lines:
        measured = [m for statement in paper.stated for m in statement.measured if not m.no_verdict]
        sources = [run_deviation(_scale(m)).line(_scale(m) or m.metric) for m in measured]
        if any(statement.swept for statement in paper.stated):
            sources.append(BEST_SETTING)
        page_parts += [grid(HEADER, lines, num_left=3), "\n".join(dict.fromkeys(sources))]
    if missing_lines:
        page_parts += ["Missing:", "\n".join(dict.fromkeys(missing_lines))]
    if assumed := _assumptions(paper):
        page_parts += ["Assumptions, and numbers without a verdict:", "\n".join(assumed)]
    if other_lines:
        page_parts += ["Settings, cited numbers and shapes of curves:", "\n".join(other_lines)]
    return page_parts


def _best_setting(statement: Statement, our_results: OurResults) -> tuple[list[str], list[str]]:
    """Return the line on a setting's best value, and missing runs.

    The verdict needs results of all values. It is "reproduced" if our best value is the paper's,
    and "inconclusive" if our result with the paper's value is not significantly below our best.
    """
    measurements = statement.swept
    first = next(iter(measurements.values()))
    scores = {v: s for v, m in measurements.items() if (s := our_results.score(statement, m))}
    missing = [_missing_line(measurements[value]) for value in measurements if value not in scores]
    paper = statement.values[first.value]
    line = [statement.where, statement.what, first.value, f"{paper}"]
    if missing:
        progress = f"{len(scores)} of {len(measurements)} values run" if scores else "not run"
        return [*line, progress, "–", "–", "–"], missing
    ours = max(scores, key=lambda value: scores[value].mean)
    is_significant = difference(scores[ours], scores[paper], first.task).is_significant
    verdict = "reproduced" if ours == paper else "another" if is_significant else "inconclusive"
    signs = "".join(dict.fromkeys(map(our_results.sign, measurements.values())))
    return [*line, f"{ours:g}{signs}", "–", "–", verdict], []


def _line(
    statement: Statement, measurement: Measurement, ours: Score | None, sign: str
) -> list[str]:
    paper, scale = statement.values[measurement.value], _scale(measurement)
    line = [statement.where, statement.what, measurement.value, f"{paper}"]
    if ours is None:
        return [*line, "not run", "–", "–", "–"]
    line.append(ours.text(2) + sign)
    if not ours.finite:
        return [*line, "–", "–", "–"]
    diff = difference(ours, _stated_score(measurement, paper), scale)
    has_verdict = diff.is_known and not measurement.no_verdict
    verdict = diff.verdict(scale) if has_verdict else "no verdict"
    return [*line, f"{diff.points:+.2f}", diff.interval_text(), verdict]


def _stated_score(measurement: Measurement, value: float) -> Score:
    """Return a stated number with its error.

    A stated difference has no known sampling error and gets the one of ours.
    """
    has_sampling_error = measurement.task and measurement.metric not in RUN_DEVIATIONS
    is_gain = len(measurement.recipes) > 1
    num_images = None if is_gain else num_test_images(measurement.task)
    two_runs = 2 * run_deviation(_scale(measurement)).points ** 2
    return Score(
        mean=value,
        metric=measurement.metric,
        num_images=num_images,
        stated_error=None if has_sampling_error else 0.0,
        run_variance=two_runs if is_gain else None,
    )


def _scale(measurement: Measurement) -> str:
    """Return the key of the run-to-run deviation: the metric if it has one, otherwise the task."""
    return measurement.metric if measurement.metric in RUN_DEVIATIONS else measurement.task


def _row(statement: Statement, recipe: str) -> Row:
    """Return the pre-training of a statement's recipe as a row without numbers."""
    pretrain = completed(statement.pretrain, published_recipes()[recipe])
    return Row(label=recipe.partition("/")[0], role="own", pretrain=pretrain, values={})


def _assumptions(paper: Paper) -> list[str]:
    """Return lines on missing verdicts and on our runs' assumptions."""
    reasons: list[tuple[str, str]] = []
    for statement in paper.stated:
        where = statement.where
        reasons += [
            (f"no verdict, because {measurement.no_verdict}.", f"{where}, {statement.what}")
            for measurement in statement.measured
            if measurement.no_verdict
        ]
        if statement.assumed:
            reasons.append((statement.assumed, where))
        if statement.swept:
            values = ", ".join(f"{value:g}" for value in sorted(statement.swept))
            named = next(iter(statement.swept.values())).value
            choice = f"the text only names {named}; the other values are our choice: {values}."
            reasons.append((choice, where))
        norm_rows = [_row(statement, recipe) for recipe in statement.recipes]
        reasons += [(line, where) for line in norm_group_lines(norm_rows)]
    return [
        f"- {'; '.join(dict.fromkeys(names))}: {text}" for text, names in grouped(reasons).items()
    ]


def _missing_line(measurement: Measurement) -> str:
    recipes = " and ".join(f"`{recipe}`" for recipe in measurement.recipes)
    task = f", then `{measurement.task}` ({measurement.protocol})" if measurement.task else ""
    return f"- needs pre-training {recipes}{task or ', then any task'}"


def _value_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)
