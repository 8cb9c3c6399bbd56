"""The range of every numeric option of pre-training, and the check of a command; it needs no torch.

A range says what an option can mean at all. Whether options fit each other, the data and the
processes is checked in settings.py.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass


class OptionError(ValueError):
    """An option outside of its range."""


@dataclass(frozen=True)
class Range:
    """Range of a number."""

    least: float
    most: float = math.inf
    open_below: bool = False
    """True if the least value is excluded."""
    open_above: bool = False
    """True if the largest value is excluded."""

    def __contains__(self, value: float) -> bool:
        """Return whether a value is in the range; nan and infinity never are."""
        above = value > self.least if self.open_below else value >= self.least
        below = value < self.most if self.open_above else value <= self.most
        return above and below and abs(value) != math.inf

    def __str__(self) -> str:
        """Return words such as "at least 0 and below 1"."""
        lower = f"{'above' if self.open_below else 'at least'} {self.least:.10g}"
        upper = f"{'below' if self.open_above else 'at most'} {self.most:.10g}"
        words = [lower] * (self.least > -math.inf) + [upper] * (self.most < math.inf)
        return " and ".join(words) or "a finite number"


ANY = Range(-math.inf)
NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, open_below=True)
SHARE = Range(0, 1)
POSITIVE_SHARE = Range(0, 1, open_below=True)
MOMENTUM = Range(0, 1, open_above=True)
COUNT = Range(0, 2**31 - 1)
POSITIVE_COUNT = Range(1, 2**31 - 1)
VIEWS = Range(1, 1000)
DIMENSION = Range(1, 2**20)
SIDE_PX = Range(1, 2**13)

COMMAND = {
    "batch_size": Range(2, 2**24),
    "epochs": Range(0, 1e6),
    "final_learning_rate": NOT_NEGATIVE,
    "learning_rate": NOT_NEGATIVE,
    "memory_gb": NOT_NEGATIVE,
    "milestones": SHARE,
    "read_every_steps": POSITIVE_COUNT,
    "save_every_min": NOT_NEGATIVE,
    "seed": Range(0, 2**32 - 1),
    "sgd_momentum": MOMENTUM,
    "snapshot_epochs": COUNT,
    "steps": COUNT,
    "test_px": Range(0, SIDE_PX.most),
    "tolerated_images": COUNT,
    "trust_coefficient": POSITIVE,
    "warmup_epochs": Range(0, 1e6),
    "weight_decay": NOT_NEGATIVE,
    "workers": Range(0, 1024),
}
"""Options of run, execution and recipe."""
VIEW = {
    "blur_sigma_px": POSITIVE,
    "brightness": SHARE,
    "contrast": SHARE,
    "crop_area": POSITIVE_SHARE,
    "crop_aspect": POSITIVE,
    "hue": Range(0, 0.5),
    "mean": ANY,
    "saturation": SHARE,
    "size_px": SIDE_PX,
    "small_crop_area": POSITIVE_SHARE,
    "small_size_px": SIDE_PX,
    "std": POSITIVE,
    **{
        f"{name}_probability": SHARE
        for name in (
            *("jitter", "gray", "blur", "second_blur", "small_blur", "solarize"),
            *("second_solarize", "flip", "rotation", "texture"),
        )
    },
}
"""Options of the views."""
METHOD = {
    "bank_momentum": MOMENTUM,
    "beta": NOT_NEGATIVE,
    "bn_splits": POSITIVE_COUNT,
    "center_momentum": MOMENTUM,
    "consistency_temperature": POSITIVE,
    "consistency_weight": NOT_NEGATIVE,
    "covariance_weight": NOT_NEGATIVE,
    "embedding_dim": DIMENSION,
    "epsilon": POSITIVE,
    "first_target_temperature": POSITIVE,
    "gaussian_center": ANY,
    "gaussian_variance": POSITIVE,
    "groups": DIMENSION,
    "hidden_dim": DIMENSION,
    "invariance_weight": NOT_NEGATIVE,
    "label_smoothing": Range(0, 1, open_above=True),
    "last_layer_from": SHARE,
    "loss_scale": POSITIVE,
    "margin": ANY,
    "momentum": SHARE,
    "num_assigned_views": VIEWS,
    "num_classes": Range(1, 2**24),
    "num_heads": VIEWS,
    "num_hidden": Range(0, 100),
    "num_images": POSITIVE_COUNT,
    "num_keys": VIEWS,
    "num_large_views": VIEWS,
    "num_negatives": COUNT,
    "num_orders": VIEWS,
    "num_prototypes": DIMENSION,
    "num_small_views": Range(0, VIEWS.most),
    "num_views": Range(2, VIEWS.most),
    "off_diagonal_weight": NOT_NEGATIVE,
    "output_dim": DIMENSION,
    "predictor_dim": DIMENSION,
    "prior_from": SHARE,
    "prototypes_from": SHARE,
    "proximal_weight": NOT_NEGATIVE,
    "queue_from": SHARE,
    "queue_size": Range(0, 2**27),
    "ridge": NOT_NEGATIVE,
    "sinkhorn_iterations": Range(1, 1000),
    "symmetry_weight": NOT_NEGATIVE,
    "target_temperature": POSITIVE,
    "temperature": POSITIVE,
    "temperature_warmup": SHARE,
    "variance_weight": NOT_NEGATIVE,
    "whitening_size": POSITIVE_COUNT,
}
"""Options of the methods' settings; a name means the same in all of them."""
RANGES: Mapping[str, Range] = COMMAND | VIEW | METHOD
"""Range of every numeric option, by the name of its field."""


def check_ranges(options: object, ranges: Mapping[str, Range] = RANGES) -> None:
    """Raise an OptionError for the first number outside of its range, also in nested dataclasses.

    The two ends of a range of numbers, such as --crop-area, must be in order. A number of a method
    without a range, such as a user's own, must be finite.
    """
    for name, values in _numbers(options):
        flag = f"--{name.replace('_', '-')} {' '.join(map(_text, values))}"
        range_ = ranges.get(name, ANY)
        if wrong := [value for value in values if value not in range_]:
            found = f", of which {_text(wrong[0])} is none" if len(values) > 1 else ""
            raise OptionError(f"{flag}: expected {range_}{found}")
        if len(values) == 2 and values[0] > values[1]:
            raise OptionError(f"{flag}: expected the smaller number first")


def _text(value: float) -> str:
    """Return a number as the user may have written it."""
    return str(value).removesuffix(".0")


def _numbers(options: object) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the name and the numbers of each numeric field of a dataclass and those in it."""
    for spec in fields(options):  # type: ignore[arg-type]
        value = getattr(options, spec.name)
        if is_dataclass(value):
            yield from _numbers(value)
            continue
        values = value if isinstance(value, tuple) else (value,)
        numbers = tuple(
            one for one in values if isinstance(one, int | float) and not isinstance(one, bool)
        )
        if numbers:
            yield spec.name, numbers
