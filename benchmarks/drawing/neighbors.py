"""Figure of the nearest neighbors of query images, of two networks side by side."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import Drawn, Figure, Material, Picture
from benchmarks.drawing.kinds import (
    is_published_run,
    newest,
    newest_by_label,
    order_words,
    problem_of,
    shares_of_tested,
)
from benchmarks.drawing.panels import Tile, TilePanel
from benchmarks.drawing.pictures import (
    captioned,
    pretrain_and_evaluate,
    ranked_pictures,
)
from benchmarks.numbers.records import Run

if TYPE_CHECKING:
    import numpy as np

TASKS = ("in100_neighbors", "inat1k_neighbors", "cifar10_neighbors")
NUM_ROWS, NUM_NEIGHBORS = 8, 5
"""Queries and neighbors that are shown."""
AGREEMENT = "same_class"
"""Metric: share of neighbors of the query's class, in percent."""


def pixels(jpeg_base64: str) -> "np.ndarray[Any, Any]":
    """Return a thumbnail as an array (H, W, 3); ValueError or OSError if it is none."""
    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(jpeg_base64, validate=True))) as image:
        return np.asarray(image.convert("RGB"))


def evenly(drawn: Sequence[Any], count: int) -> list[Any]:
    """Return at most `count` images; they were drawn at random and lie in order of class."""
    count = min(count, len(drawn))
    return [drawn[len(drawn) * place // count] for place in range(count)]


@dataclass(frozen=True, kw_only=True)
class NeighborGrid(Figure):
    """Nearest neighbors of the same queries by LooC and by the invariant MoCo."""

    augmentation: str
    """Augmentation that LooC has a head for."""
    recipes: tuple[str, str]
    """The paper's recipes of LooC and of MoCo."""
    keys: tuple[str, ...]
    """Keys of the paper's tasks, one for each half of its figure."""

    def is_published(self, one: Run) -> bool:
        """Return whether a result is one of the paper's."""
        return one.task in self.keys and is_published_run(one, self.recipes, one.task)

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with both networks."""
        results = [r for r in material.results if r.task in TASKS and self._labels(r)]
        problems = {result.path: problem_of(result, _read) for result in results}
        kinds = newest_by_label(
            [result for result in results if not problems[result.path]],
            lambda result: self._labels(result),
            self.is_published,
        )
        candidates, apart = [], []
        for kind, own in kinds.items():
            if len(own) < 2:
                continue
            looc, moco = own["LooC"], own["MoCo"]
            if _files(looc) == _files(moco):
                rank = (newest([looc, moco]),)
                candidates.append((rank, kind, self._picture(looc, moco)))
            else:
                names = f"{looc.backbone} and {moco.backbone}"
                apart.append(f"{names} have other queries and cannot stand side by side")
        return ranked_pictures(candidates, [*problems.values(), *apart])

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the recipes without a record of each task."""
        there = {(r.recipe, r.task) for r in material.results if self.is_published(r)}
        missing = [
            recipe
            for recipe in self.recipes
            if not there.issuperset((recipe, key) for key in self.keys)
        ]
        return pretrain_and_evaluate(missing, ",".join(self.keys)) if missing else []

    def _labels(self, model: Run) -> list[str]:
        """Return the panel that a network belongs to; nothing if to none."""
        designated: Any = model.settings.get("config.designated", ())
        rotated = bool(model.settings.get("views.rotation_probability"))
        is_looc = model.method in ("looc", "loocpp") and not model.heads
        if model.recipe == self.recipes[0] or (is_looc and self.augmentation in designated):
            return ["LooC"]
        wanted = model.method == "moco" and rotated == (self.augmentation == "rotation")
        return ["MoCo"] if model.recipe == self.recipes[1] or wanted else []

    def _picture(self, looc: Run, moco: Run) -> Picture:
        label = "LooC++" if looc.method == "loocpp" else "LooC"
        results = {label: [looc], "MoCo": [moco]}
        read = {label: _read(result) for label, (result,) in results.items()}
        count = len(looc.details["queries"][0]["neighbors"])
        agreement = order_words(shares_of_tested(results, AGREEMENT), looc.task)
        return captioned(
            replace(self, what=self.what.replace("LooC", label)),
            [TilePanel(title=label, rows=tiles) for label, (tiles, _) in read.items()],
            results,
            findings=[
                "The paper's figure has LooC; this is LooC++." if label == "LooC++" else "",
                f"Left of each row a query, then its {min(NUM_NEIGHBORS, count)} nearest training "
                "images by the cosine of features. Queries were drawn at random. A colored frame: "
                "of another class than the query.",
                f"Neighbors of the query's class among the {count} nearest, over all test images, "
                f"in percent: {agreement}. The paper prints no number.",
            ],
            header=("series", "query", "query_class", "rank", "neighbor", "class", "cosine"),
            rows=[(label, *row) for label, (_, rows) in read.items() for row in rows],
        )


def _files(result: Run) -> list[object]:
    return [query["file"] for query in result.details["queries"]]


def _read(result: Run) -> tuple[tuple[tuple[Tile, ...], ...], list[tuple[str, ...]]]:
    """Return the rows of images that are shown, and all rows of the CSV file."""
    queries = result.details["queries"]
    result.metrics[AGREEMENT]  # KeyError without it
    if not all(query["neighbors"] for query in queries):
        raise ValueError("a query has no neighbors")
    tiles = tuple(
        (
            Tile(pixels=pixels(query["jpeg_base64"]), label=str(query["class"])),
            *(
                Tile(pixels=pixels(each["jpeg_base64"]), agrees=each["label"] == query["label"])
                for each in query["neighbors"][:NUM_NEIGHBORS]
            ),
        )
        for query in evenly(queries, NUM_ROWS)
    )
    rows: list[tuple[str, ...]] = [
        (
            *(str(query["file"]), str(query["class"]), str(rank)),
            *(str(each["file"]), str(each["class"]), f"{each['cosine']:.6f}"),
        )
        for query in queries
        for rank, each in enumerate(query["neighbors"], 1)
    ]
    return tiles, rows
