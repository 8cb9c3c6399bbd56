"""Details of a record as charts and tables need them; entries of a foreign shape are named.

An entry that cannot be read costs only its own chart or table: it counts as absent, and the page
names it with its record.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

SEARCHES = (
    ("val_accuracy", "learning_rate", "accuracy on val, percent"),
    ("held_out_top1", "head_rate", "top-1 on held-out images, percent"),
    ("held_out_AP", "learning_rate", "AP on held-out images"),
    ("held_out_mIoU", "learning_rate", "mIoU on held-out images"),
    ("mean_cross_validated_AP", "", "cross-validated AP, mean over classes"),
)
"""Details of a search by its setting: scores, the chosen setting, and words for the scores."""
PER_CLASS = ("accuracy_per_class", "IoU_per_class")
REPEATED = ("trials", "draws")

Kind = TypeVar("Kind")
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """Images of one class that were taken for another."""

    name: str
    taken_for: str
    images: int
    of: int


@dataclass(frozen=True, kw_only=True)
class ClassChoice:
    """Chosen cost of one class."""

    cost: float
    cross_validated: float
    average_precision: float
    at_grid_edge: bool


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image that a record holds."""

    name: str
    """Name of its class."""
    file: str
    jpeg_base64: str


@dataclass(frozen=True, kw_only=True)
class Query:
    """One image with its nearest ones."""

    image: Image
    nearest: tuple[Image, ...]


@dataclass(frozen=True, kw_only=True)
class TaskDetails:
    """Everything beside the numbers of the tables; empty where the record lacks it.

    Numbers that the record leaves open are not finite.
    """

    searches: Mapping[str, Points]
    """Settings and scores in order of the settings, by name of the search's scores."""
    chosen: Mapping[str, float]
    """Chosen settings by name."""
    passes: tuple[float, ...]
    """Accuracy after each pass over the training images."""
    losses: Points
    """Training steps and losses."""
    corruptions: Mapping[str, Points]
    """Severities and top-1 by corruption."""
    precisions: Mapping[str, Mapping[str, float]]
    """Numbers of a detector by kind, such as bbox, and by name."""
    per_class: Mapping[str, Mapping[str, float]]
    """Numbers by class, by name of the detail."""
    choices: Mapping[str, ClassChoice]
    """Chosen costs by class."""
    counted_over: str
    """Words for what the numbers of classes are counted over, if not each image once."""
    repeated: Mapping[str, Mapping[str, tuple[float, ...]]]
    """Numbers of each trial or draw by metric, by name of the detail."""
    confused: tuple[Confusion, ...]
    """Most confused pairs of classes."""
    queries: tuple[Query, ...]
    unreadable: tuple[str, ...]
    """Names of the entries that have another shape than they should."""


def task_details(details: Mapping[str, Any]) -> TaskDetails:
    """Return a record's details; whatever has a foreign shape is left out and named."""
    unreadable: list[str] = []

    def read(name: str, parse: Callable[[Any], Kind], empty: Kind) -> Kind:
        if name not in details:
            return empty
        try:
            return parse(details[name])
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
            unreadable.append(name)
            return empty

    settings = dict.fromkeys(chosen for scores, chosen, _ in SEARCHES if scores in details)
    return TaskDetails(
        searches={scores: read(scores, _points, ()) for scores, _, _ in SEARCHES},
        chosen={name: read(name, _number, math.nan) for name in settings if name},
        passes=read("top1_after_each_pass", _numbers, ()),
        losses=read("training", _curve, ()),
        corruptions=read("top1", lambda kinds: _by_name(kinds, _points), {}),
        precisions=read(
            "precisions", lambda kinds: _by_name(kinds, lambda one: _by_name(one, _number)), {}
        ),
        per_class={
            name: read(name, lambda classes: _by_name(classes, _number), {}) for name in PER_CLASS
        },
        choices=read("classes", lambda classes: _by_name(classes, _choice), {}),
        counted_over=read("classes_counted_over", _text, ""),
        repeated={
            name: read(name, lambda metrics: _by_name(metrics, _numbers), {}) for name in REPEATED
        },
        confused=read("most_confused", lambda pairs: tuple(map(_confusion, _list(pairs))), ()),
        queries=read("queries", lambda found: tuple(map(_query, _list(found))), ()),
        unreadable=tuple(unreadable),
    )


def _number(value: Any) -> float:
    """Return a number; one that is left open is not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return value


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(map(_number, _list(values)))


def _by_name(found: Any, parse: Callable[[Any], Kind]) -> dict[str, Kind]:
    return {name: parse(value) for name, value in found.items()}


def _points(found: Any) -> Points:
    """Return setting and score of a mapping, whose names are numbers, in order of the settings."""
    return tuple(sorted((float(key), _number(value)) for key, value in found.items()))


def _curve(training: Any) -> Points:
    """Return steps and losses of a training; none if it kept no curve."""
    curve = _list(training.get("curve", []))
    return tuple((_number(step), _number(loss)) for step, loss in curve)


def _choice(found: Any) -> ClassChoice:
    return ClassChoice(
        cost=_number(found.get("cost")),
        cross_validated=_number(found.get("cross_validated_AP")),
        average_precision=_number(found.get("AP")),
        at_grid_edge=bool(found.get("at_grid_edge")),
    )


def _confusion(pair: Any) -> Confusion:
    return Confusion(
        name=_text(pair["class"]),
        taken_for=_text(pair["taken_for"]),
        images=int(_number(pair["images"])),
        of=int(_number(pair["of"])),
    )


def _image(found: Any) -> Image:
    return Image(
        name=_text(found.get("class", "")),
        file=_text(found.get("file", "")),
        jpeg_base64=_text(found.get("jpeg_base64", "")),
    )


def _query(found: Any) -> Query:
    return Query(image=_image(found), nearest=tuple(map(_image, _list(found["neighbors"]))))
