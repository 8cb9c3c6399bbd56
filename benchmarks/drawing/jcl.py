"""Figures of JCL, arXiv:2009.14776, on ImageNet-100."""

from collections.abc import Mapping

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.sweeps import Sweep, Swept

BASE = "jcl/in100-r18"


def jcl(recipes: Mapping[str, float]) -> tuple[Swept, ...]:
    """Return the line of JCL with these recipes."""
    return (
        Swept(
            label="JCL",
            method="jcl",
            recipes=recipes,
            protocol="jcl-2020",
            key="in100_linear@jcl",
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
)
