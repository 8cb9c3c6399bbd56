"""Figures of JCL, arXiv:2009.14776, on ImageNet-100."""

from collections.abc import Mapping

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.histograms import Histograms
from benchmarks.drawing.sweeps import Probe, Sweep, Swept, moco_v2

BASE = "jcl/in100-r18"
PROBE = Probe("jcl-2020", "in100_linear@jcl")
VIEWS = Probe("jcl-2020", "in100_view_statistics@jcl")


def jcl(recipes: Mapping[str, float]) -> tuple[Swept, ...]:
    """Return the line of JCL with these recipes."""
    return (
        Swept(
            label="JCL",
            method="jcl",
            recipes=recipes,
            probe=PROBE,
        ),
    )


FIGURES: tuple[Figure, ...] = (
    Sweep(
        id="jcl/fig2a",
        what="accuracy against the number of positive keys M'",
        setting="config.num_keys",
        symbol="number of positive keys M'",
        lines=jcl({f"{BASE}-keys{m}": m for m in (1, 2, 3, 7, 9, 11)} | {BASE: 5}),
        remarks=("The paper states that M' = 5 to 11 work well; it prints no accuracy.",),
    ),
    Sweep(
        id="jcl/fig2b",
        what="accuracy against λ, the weight of the covariance",
        setting="config.covariance_weight",
        symbol="λ",
        lines=jcl(
            {f"{BASE}-covariance{v:g}": v for v in (0, 0.2, 0.5, 1, 2, 6, 8, 10)} | {BASE: 4}
        ),
        remarks=("The paper states that λ = 0.2 to 4 are stable; it prints no accuracy.",),
    ),
    Sweep(
        id="jcl/fig2c",
        what="accuracy against the temperature τ",
        setting="config.temperature",
        symbol="τ",
        lines=jcl(
            {f"{BASE}-temperature{v:g}": v for v in (0.05, 0.07, 0.1, 0.3, 0.4, 0.5)} | {BASE: 0.2}
        ),
        remarks=("The paper states that τ = 0.2 is best; it prints no accuracy.",),
    ),
    *(
        Histograms(
            id=f"jcl/fig3{letter}",
            what=what,
            statistic=statistic,
            x_label=x_label,
            lower=lower,
            methods=(
                Swept(label="JCL", method="jcl", recipes={f"{BASE}-keys9": 9}, probe=VIEWS),
                moco_v2("MoCo v2", {"moco/in100-r18-v2": 0}, VIEWS),
            ),
            remarks=(
                "The paper does not say which views these are: here MoCo v2's. Its features are "
                "those out of each ResNet-18 network; which output that is, is our choice. (b) is "
                "(1 − (a)) / dimension.",
            ),
        )
        for letter, statistic, what, x_label, lower in (
            (
                "a",
                "mean_cosine",
                "histogram over images of the mean cosine between views",
                "mean cosine of all pairs of views",
                ("MoCo v2", "JCL"),
            ),
            (
                "b",
                "mean_covariance_diagonal",
                "histogram over images of the mean variance of a dimension over views",
                "mean variance of a dimension over views",
                ("JCL", "MoCo v2"),
            ),
        )
    ),
)
