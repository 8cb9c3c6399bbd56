"""The papers' figures as figures.yaml describes them: how to draw one, and which runs it lacks."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from benchmarks.drawing.captions import caption, stated, title_of
from benchmarks.drawing.kinds import KINDS, Material, Picture
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
    """Sentences for the caption on how the drawing differs from the printed one."""

    @property
    def title(self) -> str:
        """Return paper and figure, such as "JCL, Figure 2(a)"."""
        return title_of(self.id)

    @property
    def file_name(self) -> str:
        """Return the file name without suffix, such as jcl_figure2a."""
        return self.id.replace("/fig", "_figure")

    def caption(self, picture: Picture) -> str:
        """Return what is drawn, the runs behind it, and how they differ from the paper's."""
        return caption(self.id, self.what, self.remarks, picture)

    def draw(self, material: Material) -> tuple[Picture | None, list[str]]:
        """Return the picture of the paper's runs, or else the best one, and messages on the rest.

        None without material for any, or if a record is malformed, which then is the message.
        """
        try:
            pictures, problems = KINDS[self.kind](material, **self.arguments)
        except MALFORMED as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            return None, [f"cannot be drawn: {reason}"]
        best = max(pictures, key=lambda one: (one.exact, *one.rank), default=None)
        return best, list(dict.fromkeys(filter(None, problems)))

    def missing(self, material: Material) -> list[str]:
        """Return the recipes of the paper without a result, each with what is to be evaluated."""
        if self.kind == "log_curves":
            kept = {log.run.recipe for log in material.logs if is_unchanged(log.run)}
            recipes = [one for one in self.arguments["recipes"].values() if one not in kept]
            return [f"{recipe}: its log, kept by --logs" for recipe in recipes]
        runs, ending = material.results, ""
        if self.kind == "snapshot_curves":
            task, variants = self.arguments["task"], self.arguments["variants"]
            wanted = [(recipe, task) for recipe in variants.values()]
            runs, ending = material.snapshots, " of its snapshots"
        elif self.kind == "head_shares":
            wanted = [(self.arguments["recipe"], key) for key in self.arguments["keys"].values()]
            # with one of its heads alone, the same network has no shares
            runs = [run for run in runs if "head_shares" in run.details]
        else:
            wanted = [(recipe, line.key) for line in self.lines for recipe in line.recipes]
        return [
            f"{recipe}: {key}{ending}"
            for recipe, key in dict.fromkeys(wanted)
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
    facts = {name: entry[name] for name in Figure._fields if name in entry}
    arguments = {name: _built(value, entry["id"]) for name, value in entry.items()}
    return Figure(arguments={k: v for k, v in arguments.items() if k not in facts}, **facts)


def _built(value: Any, figure_id: str) -> Any:
    """Return mappings of a kind as objects, and the stated numbers of the papers."""
    if isinstance(value, list):
        return [_built(one, figure_id) for one in value]
    if not isinstance(value, dict):
        return value
    if "stated" in value:
        return stated(figure_id, value["stated"])
    if value.get("kind") in KINDS:
        return _figure(value).arguments
    own = {name: _built(one, figure_id) for name, one in value.items() if name != "kind"}
    return OBJECTS[value["kind"]](**own) if "kind" in value else own
