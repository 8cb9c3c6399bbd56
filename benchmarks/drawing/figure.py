"""The papers' figures, as described by figures.yaml."""

import re
from collections.abc import Container, Mapping, Sequence
from functools import cache
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.drawing.kinds import KINDS, Inputs, Picture, range_words
from benchmarks.drawing.panels import PublishedPoint
from benchmarks.drawing.selection import MALFORMED, MethodLine, is_published, is_unchanged
from benchmarks.results.numbers import run_notes
from benchmarks.results.published import Paper, papers
from benchmarks.results.records import STAND_IN_TEXTURE, Backbone, Run
from benchmarks.words import value_words
from pretrain.running.reading import read_yaml
from transfer.record import features_in

OBJECTS = {"line": MethodLine, "point": PublishedPoint}
"""Class of the mappings with each `kind`."""


class Figure(NamedTuple):
    """One figure of a paper."""

    id: str
    """Paper and figure, such as jcl/fig2a."""
    kind: str
    """Key of KINDS."""
    what: str
    """Content of the figure, as a noun phrase."""
    arguments: Mapping[str, Any]
    """Keyword arguments of the function of its kind."""
    remarks: Sequence[str] = ()
    """Sentences for the caption on differences from the printed figure."""

    @property
    def title(self) -> str:
        """Return paper and figure, such as "JCL, Figure 2(a)"."""
        return f"{paper_of(self.id).name}, {printed_name(self.id)}"

    @property
    def file_name(self) -> str:
        """Return the file name without suffix, such as jcl_figure2a."""
        return self.id.replace("/fig", "_figure")

    def caption(self, picture: Picture) -> str:
        """Return the caption: content, runs, and differences from the paper's."""
        paper, runs = paper_of(self.id), [run for runs in picture.runs.values() for run in runs]
        by_label = picture.backbones or {
            label: [run.backbone for run in label_runs]
            for label, label_runs in picture.runs.items()
        }
        data = dict.fromkeys(b.data for backbones in by_label.values() for b in backbones if b.data)
        recipes = "; ".join(
            f"{label}: {_recipe_words(of_label)}" for label, of_label in by_label.items()
        )
        changes = {
            label: _changes(of_label[0], picture.swept) for label, of_label in by_label.items()
        }
        changed = "; ".join(f"{label}: {text}" for label, text in changes.items() if text)
        if len({*changes.values()}) == 1:
            changed = next(iter(changes.values()))
        missing = ", ".join(label for label in picture.labels if label not in by_label)
        sentences = [
            f"{printed_name(self.id)} of {paper.name} (arXiv:{paper.arxiv}): {self.what}.",
            ""
            if picture.exact
            else "Not the paper's runs or data: compare the shape, not the numbers.",
            *picture.findings,
            f"Pre-training: {recipes}.",
            f"Its images: {'; '.join(data)}." if data else "",
            f"Changed from the recipes: {changed}." if changed else "",
            *_evaluation_sentences(runs),
            f"Not run: {missing}." if missing else "",
            *self.remarks,
        ]
        return " ".join(filter(None, sentences))

    def draw(self, inputs: Inputs) -> tuple[Picture | None, list[str]]:
        """Return the best picture, and error messages.

        A picture of the paper's runs has precedence. The picture is None without results. It is
        also None if a record is malformed; then a message says so.
        """
        try:
            drawn = [*KINDS[self.kind](inputs, **self.arguments)]
        except MALFORMED as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return None, [f"cannot be drawn: {reason}"]
        pictures = [picture for picture in drawn if isinstance(picture, Picture)]
        best = max(pictures, key=lambda picture: (picture.exact, *picture.rank), default=None)
        return best, list(dict.fromkeys(text for text in drawn if isinstance(text, str)))

    def missing(self, inputs: Inputs) -> list[str]:
        """Return the paper's recipes without a result, and their missing evaluation."""
        if self.kind == "log_curves":
            logged = {log.backbone.recipe for log in inputs.logs if is_unchanged(log.backbone)}
            recipes = [
                recipe for recipe in self.arguments["recipes"].values() if recipe not in logged
            ]
            return [f"{recipe}: its log, stored with --logs" for recipe in recipes]
        runs, suffix = inputs.results.succeeded, ""
        if self.kind == "snapshot_curves":
            task, variants = self.arguments["task"], self.arguments["variants"]
            required = [(recipe, task) for recipe in variants.values()]
            runs, suffix = inputs.results.snapshots, " of its snapshots"
        elif self.kind == "head_shares":
            required = [(self.arguments["recipe"], key) for key in self.arguments["keys"].values()]
            # networks with a single head have no contributions
            runs = [run for run in runs if "head_shares" in run.details]
        else:
            required = [(recipe, line.key) for line in self.lines for recipe in line.recipes]
        return [
            f"{recipe}: {key}{suffix}"
            for recipe, key in dict.fromkeys(required)
            if not any(is_published(run, [recipe], key) for run in runs)
        ]

    @property
    def lines(self) -> list[MethodLine]:
        """Return the lines of its sweeps and histograms."""
        sources = [self.arguments, *(self.arguments.get(key, {}) for key in ("across", "upward"))]
        return [
            line
            for source in sources
            for key in ("lines", "levels", "methods")
            for line in source.get(key, ())
            if isinstance(line, MethodLine)
        ]


@cache
def figures() -> dict[str, Figure]:
    """Return the figures of figures.yaml by their ids."""
    content = read_yaml(Path(__file__).with_name("figures.yaml"))
    return {entry["id"]: _figure(entry) for entry in content["figures"]}


def _figure(entry: Mapping[str, Any]) -> Figure:
    fields = {name: entry[name] for name in Figure._fields if name in entry}
    arguments = {name: _built(value, entry["id"]) for name, value in entry.items()}
    return Figure(arguments={k: v for k, v in arguments.items() if k not in fields}, **fields)


def _built(value: Any, figure_id: str) -> Any:
    """Convert mappings with a kind to objects, and insert stated numbers."""
    if isinstance(value, list):
        return [_built(element, figure_id) for element in value]
    if not isinstance(value, dict):
        return value
    if "stated" in value:
        return stated(figure_id, value["stated"])
    if value.get("kind") in KINDS:
        return _figure(value).arguments
    arguments = {
        name: _built(element, figure_id) for name, element in value.items() if name != "kind"
    }
    return OBJECTS[value["kind"]](**arguments) if "kind" in value else arguments


def _recipe_words(backbones: Sequence[Backbone]) -> str:
    """Return a line's recipes, network, length and stand-in for textures."""
    names = list(dict.fromkeys(backbone.recipe or backbone.name for backbone in backbones))
    start = commonprefix(names)  # noqa: RUF071 (names, not paths)
    lengths = sorted({float(backbone.epochs) for backbone in backbones if backbone.epochs})
    texts = [f"{len(names)} recipes {start}*" if len(names) > 1 and start else ", ".join(names)]
    if any(backbone.declared for backbone in backbones):
        texts[0] += " (declared)"
    texts += [backbones[0].arch]
    if lengths:
        noun = "epoch" if lengths == [1.0] else "epochs"
        texts.append(f"{range_words(lengths)} {noun}")
    if any(backbone.texture == STAND_IN_TEXTURE for backbone in backbones):
        texts.append(f"textures by {STAND_IN_TEXTURE} instead of style transfer")
    return ", ".join(texts)


def _changes(backbone: Backbone, swept: Container[str]) -> str:
    """Return the differences from the backbone's recipe, except swept settings."""
    names = [name for name in backbone.changed.split(", ") if name and name not in swept]
    values = {name: value_words(backbone.settings.get(name), " to ") for name in names}
    return ", ".join(
        f"{name.rpartition('.')[2].replace('_', ' ')} {value}" for name, value in values.items()
    )


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
    deviations = "; ".join(dict.fromkeys(text for run in runs for text in run.record.departures))
    return [*sentences, f"Deviations from the protocol: {deviations}."] if deviations else sentences


def paper_of(figure_id: str) -> Paper:
    """Return the paper of a figure such as jcl/fig2a."""
    return next(paper for paper in papers() if paper.id == figure_id.partition("/")[0])


def printed_name(figure_id: str) -> str:
    """Return a figure's printed name: "Figure 2(a)" for "jcl/fig2a"."""
    return re.sub(r".*/fig(\d+)([a-z]?)", r"Figure \1(\2)", figure_id).removesuffix("()")


def stated(figure_id: str, key: str) -> Any:
    """Return a number that the paper's text states about a figure.

    Raises KeyError if it is not stated.
    """
    for statement in paper_of(figure_id).stated:
        if statement.where == printed_name(figure_id) and key in statement.values:
            return statement.values[key]
    raise KeyError(f"{figure_id}: no stated number {key!r}")
