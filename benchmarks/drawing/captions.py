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


def caption(figure_id: str, content: str, remarks: Iterable[str], picture: Picture) -> str:
    """Return the caption: content, runs, and differences from the paper's."""
    paper = paper_of(figure_id)
    all_runs = [run for label_runs in picture.runs.values() for run in label_runs]
    runs = {
        label: [run if isinstance(run, Run) else run.run for run in label_runs]
        for label, label_runs in picture.runs.items()
    }
    data = dict.fromkeys(run.data for label_runs in runs.values() for run in label_runs if run.data)
    recipes = "; ".join(
        f"{label}: {_recipe_words(label_runs)}" for label, label_runs in runs.items()
    )
    changes = {label: _changes(label_runs[0], picture.swept) for label, label_runs in runs.items()}
    missing = ", ".join(label for label in picture.labels if label not in runs)
    sentences = [
        f"{printed_name(figure_id)} of {paper.name} (arXiv:{paper.arxiv}): {content}.",
        ""
        if picture.exact
        else "Not the paper's runs or data: compare the shape, not the numbers.",
        *picture.findings,
        f"Pre-training: {recipes}.",
        f"Its images: {'; '.join(data)}." if data else "",
        _by_label("Changed from the recipes", changes),
        *_evaluation_sentences([run for run in all_runs if isinstance(run, Run)]),
        f"Not run: {missing}." if missing else "",
        *remarks,
    ]
    return " ".join(filter(None, sentences))


def _recipe_words(runs: Sequence[Run]) -> str:
    """Return a line's recipes, network, length and stand-in for textures."""
    names = list(dict.fromkeys(run.recipe or run.backbone for run in runs))
    start = commonprefix(names)  # noqa: RUF071 (names, not paths)
    lengths = sorted({float(run.epochs) for run in runs if run.epochs})
    texts = [f"{len(names)} recipes {start}*" if len(names) > 1 and start else ", ".join(names)]
    if any(run.declared for run in runs):
        texts[0] += " (declared)"
    texts += [runs[0].arch]
    if lengths:
        noun = "epoch" if lengths == [1.0] else "epochs"
        texts.append(f"{range_words(lengths)} {noun}")
    if any(run.texture == STAND_IN_TEXTURE for run in runs):
        texts.append(f"textures by {STAND_IN_TEXTURE} instead of style transfer")
    return ", ".join(texts)


def _changes(run: Run, swept: Container[str]) -> str:
    """Return a run's differences from its recipe, except swept settings."""
    names = [name for name in run.changed.split(", ") if name and name not in swept]
    return ", ".join(
        f"{name.rpartition('.')[2].replace('_', ' ')} {value_words(run.settings.get(name), ' to ')}"
        for name in names
    )


def _by_label(title: str, texts: Mapping[str, str]) -> str:
    """Return a sentence of each line's text, or of their common text."""
    if len(set(texts.values())) == 1:
        text = next(iter(texts.values()))
    else:
        text = "; ".join(f"{label}: {line_text}" for label, line_text in texts.items() if line_text)
    return f"{title}: {text}." if text else ""


def _evaluation_sentences(runs: Sequence[Run]) -> list[str]:
    """Return sentences on tasks, protocols, notes and deviations."""
    if not runs:
        return []
    tasks = ", ".join(dict.fromkeys(run.task for run in runs))
    protocols = ", ".join(sorted({run.protocol for run in runs}))
    by_seed = {run.seed: run for run in reversed(runs)}
    notes = run_notes([by_seed[seed] for seed in sorted(by_seed)])
    texts = [f"protocol {protocols}", *notes, f"features in {features_in(runs[0].record)}"]
    sentences = [f"Evaluation: {tasks}, {'; '.join(texts)}."]
    deviations = "; ".join(dict.fromkeys(text for run in runs for text in run.departures))
    return [*sentences, f"Deviations from the protocol: {deviations}."] if deviations else sentences


def paper_of(figure_id: str) -> Paper:
    """Return the paper of a figure such as jcl/fig2a."""
    return next(paper for paper in papers() if paper.id == figure_id.partition("/")[0])


def printed_name(figure_id: str) -> str:
    """Return a figure's printed name: "Figure 2(a)" for "jcl/fig2a"."""
    return re.sub(r".*/fig(\d+)([a-z]?)", r"Figure \1(\2)", figure_id).removesuffix("()")


def title_of(figure_id: str) -> str:
    """Return paper and figure, such as "JCL, Figure 2(a)"."""
    return f"{paper_of(figure_id).name}, {printed_name(figure_id)}"


def stated(figure_id: str, key: str) -> Any:
    """Return a number from the text on a figure; KeyError if missing."""
    for statement in paper_of(figure_id).stated:
        if statement.where == printed_name(figure_id) and key in statement.values:
            return statement.values[key]
    raise KeyError(f"{figure_id}: no stated number {key!r}")
