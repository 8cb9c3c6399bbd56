"""Checks that a recipe fits a backbone, and a backbone's tensors a detector."""

from collections.abc import Mapping

from torch import Tensor

from transfer.convert.architectures import FEATURE_DIM, is_optional
from transfer.detection.recipe import PYRAMID_STRIDES_PX, DetectorRecipe


def check_buildable(recipe: DetectorRecipe, arch: str) -> None:
    """Raise ValueError for a detector that neither engine can build."""
    if arch not in FEATURE_DIM:
        raise ValueError(f"a detector on {arch} was asked for; known are {', '.join(FEATURE_DIM)}")
    if recipe.neck == "c4" and recipe.finds != "boxes":
        raise ValueError(f"a c4 detector finds boxes only, not {recipe.finds}: take neck fpn")
    if recipe.neck == "fpn" and recipe.extra_norms != "none":
        raise ValueError(
            f"the {recipe.extra_norms} norms belong to a c4 detector; a pyramid has them by "
            f"`normed`, and extra_norms none"
        )
    levels = len(PYRAMID_STRIDES_PX)
    if recipe.neck == "fpn" and len(recipe.anchor_sizes_px) != levels:
        raise ValueError(
            f"{len(recipe.anchor_sizes_px)} anchor sizes for the {levels} levels of a pyramid: "
            f"give one per level"
        )


def check_names_and_shapes(tensors: Mapping[str, Tensor], places: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless tensors and places match one to one, in name and shape.

    tensors: the backbone's, under the engine's names; places: the detector's tensors for them.
    Places of optional tensors may stay open.
    """
    lost = [
        name
        for name, tensor in tensors.items()
        if name not in places or places[name].shape != tensor.shape
    ]
    open_places = [name for name in places if name not in tensors and not is_optional(name)]
    if lost or open_places:
        raise ValueError(
            f"of {len(tensors)} tensors of the backbone {len(lost)} have no place in the "
            f"detector, first {lost[:3]}, and {len(open_places)} of {len(places)} places have "
            f"no tensor, first {open_places[:3]}; expected the network the detector was built on"
        )
