"""Figure of the nearest neighbors of query images, of two networks side by side."""

import base64
import binascii
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import Drawn, GridPanel, Identity, Material, Picture, Tile
from benchmarks.drawing.kinds import (
    Kind,
    evaluation_sentences,
    is_published_run,
    kind_of,
    number_of,
    pretraining_sentences,
    seed_words,
)
from benchmarks.drawing.order import noise_of, num_test_images, share_of_tested
from benchmarks.drawing.pictures import captioned, numbered, pretrain_and_evaluate
from benchmarks.pages.records import Model, Result

if TYPE_CHECKING:
    import numpy as np


def pixels(jpeg_base64: str) -> "np.ndarray[Any, Any]":
    """Return a thumbnail as an array (H, W, 3)."""
    import numpy as np
    from PIL import Image

    try:
        content = base64.b64decode(jpeg_base64, validate=True)
    except binascii.Error as error:
        raise ValueError("a thumbnail is no base64") from error
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


TASKS = ("in100_neighbors", "cifar10_neighbors")
NUM_ROWS, NUM_NEIGHBORS = 8, 5
"""Queries and neighbors that are shown."""
AGREEMENT = "same_class"
"""Metric: share of neighbors of the query's class, in percent."""
LOOC_METHODS = ("looc", "loocpp")


@dataclass(frozen=True, kw_only=True)
class NeighborGrid(Identity):
    """Nearest neighbors of the same queries by LooC and by the invariant MoCo."""

    augmentation: str
    """Augmentation that LooC has a head for."""
    recipes: tuple[str, str]
    """The paper's recipes of LooC and of MoCo."""
    key: str
    """Key in TASKS."""
    no_task: str
    """Sentence on what the paper shows besides and no task makes."""

    def draw(self, material: Material) -> Drawn:
        """Return a picture for each kind of results with both networks."""
        kinds: dict[Kind, dict[str, Result]] = {}
        problems = []
        for result in material.results:
            label = self._label(result.model) if result.task in TASKS else ""
            if label and (problem := _problem(result)):
                problems.append(f"{result.path.name} of {result.model.name}: {problem}")
            elif label:
                own = kinds.setdefault(kind_of(result), {})
                own[label] = max(own.get(label, result), result, key=self._preference)
        found = {kind: own for kind, own in kinds.items() if len(own) == 2}
        order = sorted(found, key=lambda kind: self._rank(found[kind]), reverse=True)
        drawn, pictures = [], []
        for kind in order:
            looc, moco = found[kind]["LooC"], found[kind]["MoCo"]
            if _queries(looc) == _queries(moco):
                drawn.append(kind)
                pictures.append(self._picture(looc, moco))
            else:
                names = f"{looc.model.name} and {moco.model.name}"
                problems.append(f"{names} have other queries and cannot stand side by side")
        return Drawn(
            pictures=numbered(self.file_name, pictures, drawn),
            problems=tuple(dict.fromkeys(problems)),
        )

    def needed(self, material: Material) -> Sequence[str]:
        """Return the commands of the recipes without a record."""
        there = {r.model.recipe for r in material.results if self._is_published(r)}
        missing = [recipe for recipe in self.recipes if recipe not in there]
        if not missing:
            return []
        return [*pretrain_and_evaluate(missing, self.key), f"# {self.no_task}"]

    def _label(self, model: Model) -> str:
        """Return the panel that a network belongs to; empty if to none."""
        designated: Any = model.settings.get("config.designated", ())
        rotated = bool(model.settings.get("views.rotation_probability"))
        if model.recipe == self.recipes[0] or (
            model.method in LOOC_METHODS and self.augmentation in designated and not model.heads
        ):
            return "LooC"
        wanted = model.method == "moco" and rotated == (self.augmentation == "rotation")
        return "MoCo" if model.recipe == self.recipes[1] or wanted else ""

    def _is_published(self, result: Result) -> bool:
        return result.task in TASKS and is_published_run(result, self.recipes, "looc-2020")

    def _preference(self, result: Result) -> tuple[bool, str]:
        return self._is_published(result), result.finished

    def _rank(self, own: Mapping[str, Result]) -> tuple[bool, str]:
        newest = max(result.finished for result in own.values())
        return all(map(self._is_published, own.values())), newest

    def _picture(self, looc: Result, moco: Result) -> Picture:
        exact = self._is_published(looc) and self._is_published(moco)
        label = "LooC++" if looc.model.method == "loocpp" else "LooC"
        names = {label: looc, "MoCo": moco}
        panels = [
            GridPanel(title=label, rows=tuple(_tiles(query) for query in shown_queries(result)))
            for label, result in names.items()
        ]
        models = {label: [result.model] for label, result in names.items()}
        count = len(looc.details["queries"][0]["neighbors"])
        sentences = [
            f"Left of each row a query, then its {min(NUM_NEIGHBORS, count)} nearest training "
            "images by the cosine of features. Queries were drawn at random. A colored frame: of "
            "another class than the query.",
            *_agreement(names, count, len(shown_queries(looc))),
            *pretraining_sentences(models, ()),
            *evaluation_sentences([looc, moco]),
            f"One run of each, {seed_words(result.seed for result in (looc, moco))}.",
        ]
        if label == "LooC++":
            sentences = ["The paper's figure has LooC; this is LooC++.", *sentences]
        return captioned(
            replace(self, what=self.what.replace("LooC", label)),
            panels,
            sentences,
            exact=exact,
            header=("series", "query", "query_class", "rank", "neighbor", "class", "cosine"),
            rows=[row for label, result in names.items() for row in _rows(label, result)],
        )


def _agreement(names: Mapping[str, Result], count: int, shown: int) -> list[str]:
    """Return sentences on the share of neighbors of the query's class, and on its order."""
    # neighbors of one query are alike: as if each query had one, which is the widest that it can be
    shares = {
        label: share_of_tested(number_of(result, AGREEMENT), [result], AGREEMENT)
        for label, result in names.items()
    }
    same = ", ".join(f"{label} {share.value:.1f} %" for label, share in shares.items())
    number = num_test_images(next(iter(names.values())))
    first = (
        f"Neighbors of the query's class among the {count} nearest, over all "
        f"{f'{number:,} ' if number else ''}test images (shown are {min(NUM_NEIGHBORS, count)} "
        f"neighbors of {shown} of these): {same}."
    )
    order = "Order: the paper prints no number"
    (high, low) = sorted(shares.values(), key=lambda share: -share.value)
    noise = noise_of(high, low)
    if math.isnan(noise):
        return [first, f"{order}."]
    difference = high.value - low.value
    return [
        first,
        f"{order}; here the difference of {difference:.1f} points is "
        f"{'within' if difference <= noise else 'beyond'} noise (two standard errors are at "
        f"most {noise:.1f} points).",
    ]


def shown_queries(result: Result) -> list[dict[str, Any]]:
    """Return as many queries as are shown, evenly from the record's, which are sorted by class."""
    queries: list[dict[str, Any]] = result.details["queries"]
    count = min(NUM_ROWS, len(queries))
    return [queries[place * len(queries) // count] for place in range(count)]


def _queries(result: Result) -> list[object]:
    return [query["file"] for query in result.details["queries"]]


def _tiles(query: Mapping[str, Any]) -> tuple[Tile, ...]:
    neighbors = query["neighbors"][:NUM_NEIGHBORS]
    return (
        Tile(pixels=pixels(query["jpeg_base64"]), label=str(query["class"])),
        *(
            Tile(pixels=pixels(each["jpeg_base64"]), agrees=each["label"] == query["label"])
            for each in neighbors
        ),
    )


def _rows(label: str, result: Result) -> list[tuple[str, ...]]:
    return [
        (
            label,
            str(query["file"]),
            str(query["class"]),
            str(rank),
            str(neighbor["file"]),
            str(neighbor["class"]),
            f"{neighbor['cosine']:.6f}",
        )
        for query in result.details["queries"]
        for rank, neighbor in enumerate(query["neighbors"], 1)
    ]


def _problem(result: Result) -> str:
    """Return why a record's neighbors cannot be shown; empty if they can."""
    try:
        queries = result.details["queries"]
        if not queries or not all(query["neighbors"] for query in queries):
            return "no neighbors among its details"
        for query in shown_queries(result):
            _tiles(query)
        _rows("", result)
        number_of(result, AGREEMENT)
    except (KeyError, TypeError, ValueError, OSError) as error:
        return f"its neighbors cannot be read ({error!r}); run the task again"
    return ""
