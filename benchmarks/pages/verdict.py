"""Tolerances: how far numbers must be apart to mean something."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.pages.entries import Score

Verdict = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Tolerance:
    """Largest differences between equivalent runs of one protocol, in percentage points."""

    passes: float
    warns: float
    source: str


DEFAULT_TOLERANCE = Tolerance(0.5, 1.0, "no spread is published; the limits are those of VOC07 SVM")
COCO = Tolerance(0.3, 0.6, "re-runs of the public recipes differ by 0.2 to 0.3")

TOLERANCES = {
    "in1k_linear": Tolerance(0.3, 1.0, "re-runs of MoCo v2 differ by 0.1 to 0.2"),
    "voc0712_det_c4": Tolerance(0.5, 1.0, "standard deviation 0.2 to 0.4 over MoCo's five runs"),
    "coco_det": COCO,
    "coco_insseg": COCO,
    "coco_keypoint": COCO,
    "voc07_svm": Tolerance(0.5, 1.0, "re-implementations of one protocol differ by 0.6"),
    "voc12_seg_fcn": Tolerance(0.6, 1.2, "estimated spread of re-runs"),
    "head_entropy_bits": Tolerance(0.25, 0.5, "the paper says close to; in bits, not points"),
}
"""Tolerances by task id, or by metric where it is not in percent; all other tasks have
DEFAULT_TOLERANCE."""


MARGINS_ABOVE_RANDOM = {
    "coco_det": ("AP", 3.0),
    "coco_insseg": ("AP", 3.0),
    "coco_keypoint": ("AP", 3.0),
    "voc0712_det_c4": ("AP", 3.0),
    "voc12_seg_fcn": ("mIoU", 10.0),
}
"""Metric and margin in points by task id. A fine-tuned network that is not further above random
weights may have been trained from scratch by mistake."""


def low_score_warning(
    ours: Score, random: Score | None, best: float | None, task: str, metric: str
) -> str:
    """Return a warning about a number hardly above that of random weights; empty if it is not.

    best: the highest published number, given as context because it may be close to random too.
    """
    checked_metric, margin = MARGINS_ABOVE_RANDOM.get(task, ("", 0.0))
    if metric != checked_metric or random is None or not (ours.finite and random.finite):
        return ""
    if ours.mean - random.mean > margin:
        return ""
    beside = "" if best is None else f"; the best published is {best:.1f}"
    return (
        f"not more than {margin:g} {metric} above a random initialization "
        f"({random.mean:.1f}{beside}): weights may not be loaded"
    )


def tolerance(task: str) -> Tolerance:
    """Return the tolerance of a task id."""
    return TOLERANCES.get(task, DEFAULT_TOLERANCE)


def verdict(difference: float, task: str) -> Verdict:
    """Return the verdict on ours minus published, in points; its sign does not matter."""
    limits = tolerance(task)
    distance = round(abs(difference), 6)  # in floating point, 60.6 - 60.3 is more than 0.3
    if distance <= limits.passes:
        return "pass"
    return "warn" if distance <= limits.warns else "fail"


def best_index(
    scores: Sequence[Score | None], task: str, *, higher_is_better: bool = True
) -> int | None:
    """Return the index of the best score if it leads the second by more than the noise, else None.

    The noise is the larger of the two standard deviations and the task's tolerance.
    """
    sign = -1 if higher_is_better else 1
    ranked = sorted(
        ((score, i) for i, score in enumerate(scores) if score is not None and score.finite),
        key=lambda pair: sign * pair[0].mean,
    )
    if len(ranked) < 2:
        return None
    (best, index), (second, _) = ranked[:2]
    noise = max(best.std, second.std, tolerance(task).passes)
    return index if round(abs(best.mean - second.mean), 6) > noise else None


def noise_rule(tasks: Sequence[str]) -> str:
    """Return the sentence that explains bold numbers, with the tolerances of these tasks."""
    special = [task for task in tasks if tolerance(task).passes != DEFAULT_TOLERANCE.passes]
    exceptions = "".join(f", {tolerance(task).passes} for {task}" for task in special)
    return (
        "**Bold**: best of its column and table, if ahead of the second by more than the noise: "
        "the larger of the standard deviation over seeds and "
        f"{DEFAULT_TOLERANCE.passes} points{exceptions}."
    )
