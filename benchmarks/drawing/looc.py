"""Figures of LooC, arXiv:2008.05659: nearest neighbors, and shares of the heads."""

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.heads import HeadShares
from benchmarks.drawing.neighbors import NeighborGrid
from benchmarks.pages.published import papers

LOOCPP = "loocpp/in100-r50-color-rotation-texture"
NO_INATURALIST = (
    "The paper also shows neighbors on iNaturalist-1k; the suite has no task for these."
)


def stated_bits() -> dict[str, float]:
    """Return the stated entropy of the heads' shares by task."""
    paper = next(paper for paper in papers() if paper.id == "looc")
    return {
        one.task: float(statement.values[one.value])
        for statement in paper.stated
        for one in statement.measured
        if one.metric == "head_entropy_bits"
    }


FIGURES: tuple[Figure, ...] = (
    *(
        NeighborGrid(
            id=f"looc/fig3{letter}",
            what=f"nearest neighbors by LooC with a head for {augmentation}, and by MoCo",
            augmentation=augmentation,
            recipes=(f"looc/in100-r50-{augmentation}", moco),
            key="in100_neighbors",
            no_task=NO_INATURALIST,
            remarks=(f"({letter}) is the {side} part of the printed figure.", NO_INATURALIST),
        )
        for letter, augmentation, moco, side in (
            ("a", "color", "moco/in100-r50", "left"),
            ("b", "rotation", "moco/in100-r50-rotation", "right"),
        )
    ),
    HeadShares(
        id="looc/fig4",
        what="share of each head in the correct predictions of a linear probe",
        recipe=LOOCPP,
        keys={"in100_linear": "in100_linear@looc", "inat1k_linear": "inat1k_linear"},
        protocol="looc-2020",
        stated_bits=stated_bits(),
        remarks=(
            "The share of a head is its part of the margin of an image's class over the mean of "
            "all classes; the paper does not define it further.",
        ),
    ),
)
