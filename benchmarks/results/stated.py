"""Page of the numbers that only the papers' running texts state, with ours beside them."""

from collections.abc import Iterable
from dataclasses import replace

from benchmarks.results.differences import (
    RUN_DEVIATIONS,
    Score,
    difference,
    gain,
    run_deviation,
    score_of,
)
from benchmarks.results.numbers import Number
from benchmarks.results.published import (
    Measurement,
    Paper,
    Pretraining,
    Row,
    Statement,
    all_tables,
    completed,
    num_test_images,
    papers,
    published_recipes,
)
from benchmarks.results.records import DECLARED, grouped
from benchmarks.results.tables import Page, Part, declaration_notes, grid
from benchmarks.results.verdicts import norm_group_lines, pretraining_differences

HEADER = ("where", "statement", "number", "paper", "ours", "diff.", "95 % interval", "verdict")


class Evidence:
    """Our results that the statements are compared with."""

    def __init__(self, numbers: Iterable[Number]) -> None:
        """Sort our numbers by backbone and recipe."""
        measured = [number for number in numbers if number.runs]
        comparable = [number for number in measured if number.comparable]
        self.scores = {(n.row, *n.column, n.metric): n.score for n in comparable}
        every = {n.run.identity: n._replace(conditions="") for n in reversed(measured)}
        self.backbones = [every[identity] for identity in sorted(every)]
        """Backbones with any result: metrics of their pre-training need no evaluation."""
        rows = {number.row: number for number in reversed(comparable)}
        self.by_recipe = {
            "pre-training": grouped((row.run.recipe, row) for row in self.backbones),
            "tasks": grouped((rows[key].run.recipe, rows[key]) for key in sorted(rows)),
        }
        self.pretrained = {
            row.recipe: row.pretrain
            for _, table in reversed(all_tables())
            for row in reversed(table.rows)
            if not row.heads
        }

    def backbones_of(self, recipe: str, measurement: Measurement) -> list[Number]:
        """Return the rows of a recipe whose results may be compared with a number."""
        kind = "tasks" if measurement.task else "pre-training"
        return self.by_recipe[kind].get(recipe, [])

    def sign(self, measurement: Measurement) -> str:
        """Return the sign of declared recipes if one of the backbones has it."""
        recipes = measurement.recipes
        rows = (row for recipe in recipes for row in self.backbones_of(recipe, measurement))
        return DECLARED if any(row.run.declared for row in rows) else ""

    def score(self, statement: Statement, measurement: Measurement) -> Score | None:
        """Return our result, or the difference of two results; None if one is missing."""
        scores = []
        for recipe in measurement.recipes:
            of_table = self.pretrained.get(recipe, Pretraining())
            pretrain = completed(statement.pretrain, of_table)
            row = Row(label="", role="own", pretrain=pretrain, values={})
            fitting = {  # further rows of a file are no further runs
                backbone.run.sha256: backbone
                for backbone in reversed(self.backbones_of(recipe, measurement))
                if not backbone.conditions and not pretraining_differences(row, backbone.run)
            }
            values = [v for b in fitting.values() if (v := self._value(b, measurement))]
            if not values:
                return None
            # a single backbone keeps its own errors
            alone = len(values) == 1
            scores.append(values[0] if alone else score_of([value.mean for value in values]))
        return scores[0] if len(scores) == 1 else gain(scores[0], scores[1], _scale(measurement))

    def _value(self, row: Number, measurement: Measurement) -> Score | None:
        """Return our number; for those of pre-training, only the run-to-run deviation is known."""
        metric = measurement.metric
        if not measurement.task:
            value = row.run.last_epoch.get(metric)
            return None if value is None else Score(mean=value, metric=metric, stated_error=0.0)
        score = self.scores.get((row.row, measurement.task, measurement.protocol, metric))
        if score and metric in RUN_DEVIATIONS:
            return replace(score, images="", details=(), stated_error=0.0)
        return score


def stated_page(numbers: Iterable[Number], command: str) -> Page:
    """Return the page."""
    evidence = Evidence(numbers)
    page: Page = [
        "# Numbers of the running texts",
        "What the papers state outside their tables. Percent, or points where two results are "
        f"subtracted, or bits for entropies. Made by `{command}`.",
    ]
    for paper in papers():
        page += _paper_parts(paper, evidence) if paper.stated else []
    return page + declaration_notes(row.run for row in evidence.backbones)


def _paper_parts(paper: Paper, evidence: Evidence) -> list[Part]:
    lines, needed, others = [], [], []
    for statement in paper.stated:
        measurements = [*statement.measured, *statement.swept.values()]
        for measurement in statement.measured:
            ours = evidence.score(statement, measurement)
            lines.append(_line(statement, measurement, ours, evidence.sign(measurement)))
            needed += [] if ours else [_needed(measurement)]
        if statement.swept:
            best, missing = _best_setting(statement, evidence)
            lines.append(best)
            needed += missing
        compared = {measurement.value for measurement in measurements}
        rest = {key: value for key, value in statement.values.items() if key not in compared}
        if rest:
            values = ", ".join(f"{key} {_words(value)}" for key, value in rest.items())
            others.append(f"- {statement.where}, {statement.what}: {values}")
    parts: list[Part] = [
        f"## {paper.name}",
        f"*{paper.title}*, {paper.venue}, arXiv:{paper.arxiv}.",
    ]
    if lines:
        parts += [grid(HEADER, lines, left=3), "\n".join(_deviation_sources(paper))]
    if needed:
        parts += ["Missing:", "\n".join(dict.fromkeys(needed))]
    if assumed := _assumptions(paper):
        parts += ["Our readings, and what has no verdict:", "\n".join(assumed)]
    if others:
        parts += ["Settings, cited numbers and shapes of curves:", "\n".join(others)]
    return parts


def _best_setting(statement: Statement, evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the line on the best value of a swept setting, and what is missing for it.

    It is reproduced if our best value is the paper's, and inconclusive if that one is not
    significantly below ours. All values must be there.
    """
    measurements = statement.swept
    first = next(iter(measurements.values()))
    by_value = {value: evidence.score(statement, one) for value, one in measurements.items()}
    scores = {value: score for value, score in by_value.items() if score}
    paper = statement.values[first.value]
    line = [statement.where, statement.what, first.value, f"{paper}"]
    missing = [_needed(one) for value, one in measurements.items() if value not in scores]
    if missing:
        there = f"{len(scores)} of {len(measurements)} values run" if scores else "not run"
        return [*line, there, "–", "–", "–"], missing
    ours = max(scores, key=lambda value: scores[value].mean)
    sure = difference(scores[ours], scores[paper], first.task).sure
    word = "reproduced" if ours == paper else "another" if sure else "inconclusive"
    signs = "".join(dict.fromkeys(map(evidence.sign, measurements.values())))
    return [*line, f"{ours:g}{signs}", "–", "–", word], []


def _line(
    statement: Statement, measurement: Measurement, ours: Score | None, sign: str
) -> list[str]:
    paper, scale = statement.values[measurement.value], _scale(measurement)
    line = [statement.where, statement.what, measurement.value, f"{paper}"]
    if ours is None:
        return [*line, "not run", "–", "–", "–"]
    if not ours.finite:
        return [*line, ours.text(2) + sign, "–", "–", "–"]
    apart = difference(ours, _stated_score(measurement, paper), scale)
    line += [ours.text(2) + sign, f"{apart.points:+.2f}"]
    line.append(apart.interval_text() if apart.known else "–")
    judged = apart.known and not measurement.no_verdict
    return [*line, apart.verdict(scale) if judged else "no verdict"]


def _stated_score(measurement: Measurement, value: float) -> Score:
    """Return a stated number; a difference of two has no known error, and takes that of ours."""
    counted = measurement.task and measurement.metric not in RUN_DEVIATIONS
    is_gain = len(measurement.recipes) > 1
    of_task = None if is_gain else num_test_images(measurement.task)
    two_runs = 2 * run_deviation(_scale(measurement)).points ** 2
    return Score(
        mean=value,
        metric=measurement.metric,
        num_images=of_task,
        stated_error=None if counted else 0.0,
        run_variance=two_runs if is_gain else None,
    )


def _scale(measurement: Measurement) -> str:
    """Return the name of the deviation: that of the metric if it has one, else the task's."""
    return measurement.metric if measurement.metric in RUN_DEVIATIONS else measurement.task


def _deviation_sources(paper: Paper) -> list[str]:
    measured = [one for statement in paper.stated for one in statement.measured]
    lines = dict.fromkeys(
        f"- {_scale(one) or one.metric}: {run_deviation(_scale(one)).points:g} from run to run; "
        f"{run_deviation(_scale(one)).source}."
        for one in measured
        if not one.no_verdict
    )
    best = "- best setting: inconclusive where the paper's value is not significantly below."
    return [*lines, *[best] * any(statement.swept for statement in paper.stated)]


def _assumptions(paper: Paper) -> list[str]:
    """Return lines on what has no verdict, and on what our runs assume, with where it is stated."""
    reasons: dict[str, list[str]] = {}
    for one in paper.stated:
        for measurement in (measurement for measurement in one.measured if measurement.no_verdict):
            reason = f"no verdict, as {measurement.no_verdict}."
            reasons.setdefault(reason, []).append(f"{one.where}, {one.what}")
        if one.assumed:
            reasons.setdefault(one.assumed, []).append(one.where)
        if one.swept:
            values = ", ".join(f"{value:g}" for value in sorted(one.swept))
            named = next(iter(one.swept.values())).value
            grid = f"the text names {named} alone; the values it is chosen from are ours"
            reasons.setdefault(f"{grid}: {values}.", []).append(one.where)
        for line in norm_group_lines(_norm_rows(one)):
            reasons.setdefault(line, []).append(one.where)
    return [f"- {'; '.join(dict.fromkeys(names))}: {text}" for text, names in reasons.items()]


def _norm_rows(statement: Statement) -> list[Row]:
    """Return a row for each recipe of a statement, labeled by its method, with its norm groups."""
    return [
        Row(label=recipe.partition("/")[0], role="own", pretrain=pretrain, values={})
        for recipe in statement.recipes
        for pretrain in [completed(statement.pretrain, published_recipes()[recipe])]
    ]


def _needed(measurement: Measurement) -> str:
    recipes = " and ".join(f"`{recipe}`" for recipe in measurement.recipes)
    task = f", then `{measurement.task}` ({measurement.protocol})" if measurement.task else ""
    return f"- needs pre-training {recipes}{task or ', then any task'}"


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return " to ".join(map(str, value)) if isinstance(value, list) else str(value)
