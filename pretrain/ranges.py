"""The range of every numeric option of pre-training, and the check of a command; it needs no torch.

A range says what an option can mean at all. Whether options fit each other, the data and the
processes is checked in settings.py.
"""

from collections.abc import Mapping

from pretrain.running.option_ranges import OptionError, Range, numbers


def _by_name(*groups: tuple[Range, str]) -> dict[str, Range]:
    """Return the range of each option, from ranges with the names that have them."""
    return {name: each for each, names in groups for name in names.split()}


ANY = Range()
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

COMMAND = _by_name(
    (NOT_NEGATIVE, "final_learning_rate learning_rate memory_gb save_every_min weight_decay"),
    (COUNT, "snapshot_epochs steps tolerated_images"),
    (POSITIVE_COUNT, "read_every_steps"),
    (POSITIVE, "trust_coefficient"),
    (SHARE, "milestones"),
    (MOMENTUM, "sgd_momentum"),
    (Range(2, 2**24), "batch_size"),
    (Range(0, 1e6), "epochs warmup_epochs"),
    (Range(0, 2**32 - 1), "seed"),
    (Range(0, SIDE_PX.most), "test_px"),
    (Range(0, 1024), "workers"),
)
"""Options of run, execution and recipe."""
VIEW = _by_name(
    (SIDE_PX, "size_px small_size_px"),
    (POSITIVE_SHARE, "crop_area small_crop_area"),
    (POSITIVE, "crop_aspect blur_sigma_px std"),
    (ANY, "mean"),
    (SHARE, "brightness contrast saturation"),
    (Range(0, 0.5), "hue"),
    (SHARE, "jitter_probability gray_probability flip_probability rotation_probability"),
    (SHARE, "blur_probability second_blur_probability small_blur_probability"),
    (SHARE, "solarize_probability second_solarize_probability texture_probability"),
)
"""Options of the views."""
METHOD = _by_name(
    (POSITIVE, "temperature target_temperature first_target_temperature consistency_temperature"),
    (POSITIVE, "epsilon gaussian_variance loss_scale"),
    (NOT_NEGATIVE, "consistency_weight covariance_weight invariance_weight off_diagonal_weight"),
    (NOT_NEGATIVE, "proximal_weight symmetry_weight variance_weight beta ridge"),
    (ANY, "gaussian_center margin"),
    (SHARE, "momentum temperature_warmup"),
    (SHARE, "last_layer_from prior_from prototypes_from queue_from"),
    (MOMENTUM, "bank_momentum center_momentum label_smoothing"),
    (DIMENSION, "embedding_dim hidden_dim output_dim predictor_dim num_prototypes groups"),
    (VIEWS, "num_keys num_large_views num_assigned_views num_heads num_orders"),
    (Range(2, VIEWS.most), "num_views"),
    (Range(0, VIEWS.most), "num_small_views"),
    (POSITIVE_COUNT, "bn_splits num_images whitening_size"),
    (COUNT, "num_negatives"),
    (Range(1, 2**24), "num_classes"),
    (Range(0, 100), "num_hidden"),
    (Range(0, 2**27), "queue_size"),
    (Range(1, 1000), "sinkhorn_iterations"),
)
"""Options of the methods' settings; a name means the same in all of them."""
RANGES: Mapping[str, Range] = COMMAND | VIEW | METHOD
"""Range of every numeric option, by the name of its field."""


def check_ranges(options: object, ranges: Mapping[str, Range] = RANGES) -> None:
    """Raise an OptionError for the first number outside of its range, also in nested dataclasses.

    The two ends of a range of numbers, such as --crop-area, must be in order. A number of a method
    without a range, such as a user's own, must be finite.
    """
    for name, values in numbers(options):
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
