"""All checks, in the order in which they run. What computes is imported by the check that runs."""

from functools import partial

from transfer.checks.report import Check, Facts, Place


def all_checks() -> list[Check]:
    """Return all checks, the quick ones first."""
    return feature_checks()


def feature_checks() -> list[Check]:
    """Return the checks of frozen features."""
    return [
        Check(
            name=f"features of {arch} in {precision}",
            group="features",
            seconds=3.0,
            run=partial(_features, arch, precision),
        )
        for arch in ("resnet18", "resnet50")
        for precision in ("float32", "bfloat16")
    ]


def _features(arch: str, precision: str, place: Place) -> Facts:
    from transfer.checks import features

    check = features.check_float32 if precision == "float32" else features.check_bfloat16
    return check(arch, place)
