"""Figures of UniCLR, arXiv:2211.14516: nearest neighbors while SimAffinity's variants train."""

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.progress import SnapshotCurves

ENDINGS = {
    "SimAffinity": "",
    "w/o T": "-without-t",
    "w/o S": "-without-s",
    "w/o T&S": "-without-ts",
}
"""Ending of the recipe by the paper's label, from fastest to slowest by its text: S, the symmetric
loss, helps more than T, the temperature."""
REMARK = (
    "S: symmetric loss, T: temperature. The paper prints no number; it states that each alone "
    "converges faster than neither, S faster than T, and both fastest."
)

FIGURES: tuple[Figure, ...] = tuple(
    SnapshotCurves(
        id=f"uniclr/fig2{letter}",
        what=f"nearest neighbors on {title} during pre-training",
        task=f"{dataset}_knn",
        protocol="uniclr-2022",
        variants={
            label: f"simaffinity/{dataset}-fig2{ending}" for label, ending in ENDINGS.items()
        },
        remarks=(REMARK,),
    )
    for letter, dataset, title in (("a", "cifar10", "CIFAR-10"), ("b", "cifar100", "CIFAR-100"))
)
