"""Captions, file names, stated numbers, and the commands that make what a figure lacks."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from benchmarks.drawing.figure import Drawn, Figure, Panel, Picture, Point, TrainingLog
from benchmarks.results.numbers import run_notes
from benchmarks.results.published import Paper, Statement, papers
from benchmarks.results.records import STAND_IN_TEXTURE, Run, value_words
from transfer.record import features_in

Candidate = tuple[tuple[Any, ...], Picture]
"""Rank of a picture among those of a figure, and the picture."""


def best_picture(candidates: Iterable[Candidate], problems: Iterable[str] = ()) -> Drawn:
    """Return the picture of the best kind: the paper's own runs, or that of the highest rank."""
    best = max(candidates, key=lambda one: (one[1].exact, *one[0]), default=None)
    pictures = () if best is None else (best[1],)
    return Drawn(pictures=pictures, problems=tuple(dict.fromkeys(filter(None, problems))))


def captioned(
    figure: Figure,
    panels: Sequence[Panel],
    lines: Mapping[str, Sequence[Run | TrainingLog]],
    *,
    findings: Iterable[str] = (),
    varied: Container[str] = (),
    shown: Iterable[str] = (),
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
) -> Picture:
    """Return a picture whose caption names the printed figure and says how ours differs.

    lines: what is shown, by label. findings: sentences before those on pre-training. varied:
    settings on the x axis. shown: labels of the paper's lines, if the caption names absent ones.
    """
    paper, name = paper_of(figure.id), printed_name(figure.id)
    members = [one for own in lines.values() for one in own]
    results = [one for one in members if isinstance(one, Run)]
    exact = all(map(figure.is_published, members))
    models = {
        label: [one if isinstance(one, Run) else one.run for one in own]
        for label, own in lines.items()
    }
    absent = ", ".join(label for label in shown if label not in lines)
    sentences = [
        f"{name} of {paper.name} (arXiv:{paper.arxiv}): {figure.what}.",
        "" if exact else "Not the paper's runs or data: compare the shape, not the numbers.",
        *findings,
        *pretraining_sentences(models, varied),
        *evaluation_sentences(results),
        f"Not run: {absent}." if absent else "",
        *figure.remarks,
    ]
    return Picture(
        file_name=figure.file_name,
        title=title_of(figure.id),
        panels=tuple(panels),
        caption=tuple(filter(None, sentences)),
        header=header,
        rows=tuple(rows),
        exact=exact,
    )


def evaluation_sentences(results: Sequence[Run]) -> list[str]:
    """Return sentences on tasks, protocols, the notes that tables have, and departures."""
    if not results:
        return []
    tasks = ", ".join(dict.fromkeys(result.task for result in results))
    protocols = ", ".join(sorted({result.protocol for result in results}))
    by_seed = {result.seed: result for result in reversed(results)}
    notes = run_notes([by_seed[seed] for seed in sorted(by_seed)])
    words = [f"protocol {protocols}", *notes, f"features in {features_in(results[0].record)}"]
    sentences = [f"Evaluation: {tasks}, {'; '.join(words)}."]
    departures = "; ".join(dict.fromkeys(text for one in results for text in one.departures))
    return [*sentences, f"Departures from the protocol: {departures}."] if departures else sentences


def seed_words(seeds: Iterable[object]) -> str:
    """Return words such as "seed 0" or "seeds 0, 1", each seed once."""
    distinct = sorted(set(seeds), key=lambda seed: (len(str(seed)), str(seed)))
    return f"seed{'s' * (len(distinct) > 1)} {', '.join(map(str, distinct))}"


def pretraining_sentences(models: Mapping[str, Sequence[Run]], varied: Container[str]) -> list[str]:
    """Return the sentences on each line's pre-training, and where it differs from its recipe.

    varied: settings on the x axis, which are no changes of a recipe.
    """
    recipes = [f"{label}: {_recipe_words(own)}" for label, own in models.items()]
    first = {label: own[0] for label, own in models.items()}
    data = dict.fromkeys(model.data for own in models.values() for model in own if model.data)
    changes = {label: _changes(one, varied) for label, one in first.items()}
    return [
        f"Pre-training: {'; '.join(recipes)}.",
        f"Its images: {'; '.join(data)}." if data else "",
        _by_label("Changed from the recipes", changes),
    ]


def _by_label(title: str, words: Mapping[str, str]) -> str:
    """Return a sentence of each line's words, once if they are the same; empty without any."""
    if len(set(words.values())) == 1:
        text = next(iter(words.values()))
    else:
        text = "; ".join(f"{label}: {own}" for label, own in words.items() if own)
    return f"{title}: {text}." if text else ""


def _recipe_words(models: Sequence[Run]) -> str:
    """Return a line's recipes, network, length and stand-in for textures."""
    names = list(dict.fromkeys(model.recipe or model.backbone for model in models))
    start = commonprefix(names)  # noqa: RUF071 (names, not paths)
    lengths = sorted({float(model.epochs) for model in models if model.epochs})
    words = [f"{len(names)} recipes {start}*" if len(names) > 1 and start else ", ".join(names)]
    words[0] += " (declared by the user)" * any(model.declared for model in models)
    words += [models[0].arch]
    words += [f"{range_words(lengths)} epoch{'s' * (lengths != [1.0])}"] if lengths else []
    if any(model.texture == STAND_IN_TEXTURE for model in models):
        words.append(f"textures by {STAND_IN_TEXTURE} instead of style transfer")
    return ", ".join(words)


def range_words(values: Sequence[float]) -> str:
    """Return the lowest and the highest of sorted values in words such as "0 to 6"."""
    low, high = values[0], values[-1]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _changes(model: Run, varied: Container[str]) -> str:
    """Return the settings in which a run differs from its recipe."""
    names = [name for name in model.changed.split(", ") if name and name not in varied]
    values = {name: value_words(model.settings.get(name), " to ") for name in names}
    return ", ".join(
        f"{name.rpartition('.')[2].replace('_', ' ')} {value}" for name, value in values.items()
    )


def paper_of(figure_id: str) -> Paper:
    """Return the paper of a figure such as jcl/fig2a."""
    return next(paper for paper in papers() if paper.id == figure_id.partition("/")[0])


def printed_name(figure_id: str) -> str:
    """Return the name of a figure as a paper prints it: "Figure 2(a)" of "jcl/fig2a"."""
    number, panel = re.fullmatch(r"\w+/fig(\d+)([a-z]?)", figure_id).groups()  # type: ignore[union-attr]
    return f"Figure {number}({panel})" if panel else f"Figure {number}"


def title_of(figure_id: str) -> str:
    """Return paper and figure, such as "JCL, Figure 2(a)"."""
    return f"{paper_of(figure_id).name}, {printed_name(figure_id)}"


def stated(figure_id: str, key: str) -> Any:
    """Return a stated number; KeyError if the text does not state it."""
    values = [one.values[key] for one in statements(figure_id) if key in one.values]
    if not values:
        raise KeyError(f"{figure_id}: no stated number {key!r}")
    return values[0]


def statements(figure_id: str) -> list[Statement]:
    """Return what the text states on a figure."""
    return [one for one in paper_of(figure_id).stated if one.where == printed_name(figure_id)]


def point_words(point: Point, digits: int = 4) -> tuple[str, ...]:
    """Return x, mean, standard deviation and number of runs as words of a CSV file."""
    x = "" if point.x != point.x else f"{point.x:g}"
    spread = "" if point.spread is None else f"{point.spread:.{digits}f}"
    return x, f"{point.y:.{digits}f}", spread, str(point.num_runs)
