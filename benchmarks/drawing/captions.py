"""Titles, captions, and numbers that the papers' texts state."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from os.path import commonprefix
from typing import Any

from benchmarks.drawing.kinds import Picture, range_words
from benchmarks.results.numbers import run_notes
from benchmarks.results.published import Paper, papers
from benchmarks.results.records import STAND_IN_TEXTURE, Run, value_words
from transfer.record import features_in


def caption(figure_id: str, what: str, remarks: Iterable[str], picture: Picture) -> str:
    """Return what is drawn, the runs behind it, and how they differ from the paper's."""
    paper = paper_of(figure_id)
    shown = [one for own in picture.runs.values() for one in own]
    runs = {
        label: [one if isinstance(one, Run) else one.run for one in own]
        for label, own in picture.runs.items()
    }
    data = dict.fromkeys(run.data for own in runs.values() for run in own if run.data)
    recipes = "; ".join(f"{label}: {_recipe_words(own)}" for label, own in runs.items())
    changes = {label: _changes(own[0], picture.swept) for label, own in runs.items()}
    absent = ", ".join(label for label in picture.labels if label not in runs)
    sentences = [
        f"{printed_name(figure_id)} of {paper.name} (arXiv:{paper.arxiv}): {what}.",
        ""
        if picture.exact
        else "Not the paper's runs or data: compare the shape, not the numbers.",
        *picture.findings,
        f"Pre-training: {recipes}.",
        f"Its images: {'; '.join(data)}." if data else "",
        _by_label("Changed from the recipes", changes),
        *_evaluation_sentences([one for one in shown if isinstance(one, Run)]),
        f"Not run: {absent}." if absent else "",
        *remarks,
    ]
    return " ".join(filter(None, sentences))


def _recipe_words(runs: Sequence[Run]) -> str:
    """Return a line's recipes, network, length and stand-in for textures."""
    names = list(dict.fromkeys(run.recipe or run.backbone for run in runs))
    start = commonprefix(names)  # noqa: RUF071 (names, not paths)
    lengths = sorted({float(run.epochs) for run in runs if run.epochs})
    words = [f"{len(names)} recipes {start}*" if len(names) > 1 and start else ", ".join(names)]
    words[0] += " (declared)" * any(run.declared for run in runs)
    words += [runs[0].arch]
    words += [f"{range_words(lengths)} epoch{'s' * (lengths != [1.0])}"] if lengths else []
    if any(run.texture == STAND_IN_TEXTURE for run in runs):
        words.append(f"textures by {STAND_IN_TEXTURE} instead of style transfer")
    return ", ".join(words)


def _changes(run: Run, swept: Container[str]) -> str:
    """Return the settings in which a run differs from its recipe, without the swept ones."""
    names = [name for name in run.changed.split(", ") if name and name not in swept]
    return ", ".join(
        f"{name.rpartition('.')[2].replace('_', ' ')} {value_words(run.settings.get(name), ' to ')}"
        for name in names
    )


def _by_label(title: str, words: Mapping[str, str]) -> str:
    """Return a sentence of each line's words, once if they are the same; empty without any."""
    if len(set(words.values())) == 1:
        text = next(iter(words.values()))
    else:
        text = "; ".join(f"{label}: {own}" for label, own in words.items() if own)
    return f"{title}: {text}." if text else ""


def _evaluation_sentences(runs: Sequence[Run]) -> list[str]:
    """Return sentences on tasks, protocols, the notes that tables have, and deviations."""
    if not runs:
        return []
    tasks = ", ".join(dict.fromkeys(run.task for run in runs))
    protocols = ", ".join(sorted({run.protocol for run in runs}))
    by_seed = {run.seed: run for run in reversed(runs)}
    notes = run_notes([by_seed[seed] for seed in sorted(by_seed)])
    words = [f"protocol {protocols}", *notes, f"features in {features_in(runs[0].record)}"]
    sentences = [f"Evaluation: {tasks}, {'; '.join(words)}."]
    departures = "; ".join(dict.fromkeys(text for run in runs for text in run.departures))
    return [*sentences, f"Deviations from the protocol: {departures}."] if departures else sentences


def paper_of(figure_id: str) -> Paper:
    """Return the paper of a figure such as jcl/fig2a."""
    return next(paper for paper in papers() if paper.id == figure_id.partition("/")[0])


def printed_name(figure_id: str) -> str:
    """Return the name of a figure as a paper prints it: "Figure 2(a)" of "jcl/fig2a"."""
    return re.sub(r".*/fig(\d+)([a-z]?)", r"Figure \1(\2)", figure_id).removesuffix("()")


def title_of(figure_id: str) -> str:
    """Return paper and figure, such as "JCL, Figure 2(a)"."""
    return f"{paper_of(figure_id).name}, {printed_name(figure_id)}"


def stated(figure_id: str, key: str) -> Any:
    """Return a number that the text on a figure states; KeyError if there is none."""
    for statement in paper_of(figure_id).stated:
        if statement.where == printed_name(figure_id) and key in statement.values:
            return statement.values[key]
    raise KeyError(f"{figure_id}: no stated number {key!r}")
