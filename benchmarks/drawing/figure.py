"""The papers' figures, as described by figures.yaml."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.drawing.captions import caption, stated, title_of
from benchmarks.drawing.kinds import KINDS, Inputs, Picture
from benchmarks.drawing.panels import PublishedPoint
from benchmarks.drawing.selection import MALFORMED, MethodLine, is_published, is_unchanged

OBJECTS = {"line": MethodLine, "point": PublishedPoint}
"""Class that a mapping of the file becomes, by its `kind`."""


class Figure(NamedTuple):
    """One figure of a paper."""

    id: str
    """Paper and figure, such as jcl/fig2a."""
    kind: str
    """Key of KINDS."""
    what: str
    """Content of the figure, a noun phrase."""
    arguments: Mapping[str, Any]
    """Keyword arguments of the function of its kind."""
    remarks: Sequence[str] = ()
    """Sentences for the caption on differences from the printed figure."""

    @property
    def title(self) -> str:
        """Return paper and figure, such as "JCL, Figure 2(a)"."""
        return title_of(self.id)

    @property
    def file_name(self) -> str:
        """Return the file name without suffix, such as jcl_figure2a."""
        return self.id.replace("/fig", "_figure")

    def caption(self, picture: Picture) -> str:
        """Return the caption: content, runs, and differences from the paper's."""
        return caption(self.id, self.what, self.remarks, picture)

    def draw(self, inputs: Inputs) -> tuple[Picture | None, list[str]]:
        """Return the best picture, and error messages.

        A picture of the paper's runs has precedence. None without inputs, or if a record is
        malformed (with a message).
        """
        try:
            pictures, problems = KINDS[self.kind](inputs, **self.arguments)
        except MALFORMED as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return None, [f"cannot be drawn: {reason}"]
        best = max(pictures, key=lambda picture: (picture.exact, *picture.rank), default=None)
        return best, list(dict.fromkeys(filter(None, problems)))

    def missing(self, inputs: Inputs) -> list[str]:
        """Return the paper's recipes without a result, and their missing evaluation."""
        if self.kind == "log_curves":
            logged = {log.run.recipe for log in inputs.logs if is_unchanged(log.run)}
            recipes = [
                recipe for recipe in self.arguments["recipes"].values() if recipe not in logged
            ]
            return [f"{recipe}: its log, stored with --logs" for recipe in recipes]
        runs, suffix = inputs.results, ""
        if self.kind == "snapshot_curves":
            task, variants = self.arguments["task"], self.arguments["variants"]
            required = [(recipe, task) for recipe in variants.values()]
            runs, suffix = inputs.snapshots, " of its snapshots"
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
    path = Path(__file__).with_name("figures.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
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
