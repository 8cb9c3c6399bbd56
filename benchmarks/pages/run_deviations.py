"""How far apart two runs of one protocol come out: stated deviations, each with its source."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunDeviation:
    """Standard deviation of one protocol's number from run to run, in points."""

    points: float
    source: str
    reach: float = 1.0
    """How far the interval of a reproduced number may reach, in points."""


COCO = RunDeviation(0.18, "re-runs of the public recipes differ by 0.2 to 0.3")
DEFAULT = RunDeviation(0.3, "none is published; assumed as a little above that of ImageNet's probe")
RUN_DEVIATIONS = {
    "in1k_linear": RunDeviation(0.1, "re-runs of MoCo v2 differ by 0.1 to 0.2"),
    "voc0712_det_c4": RunDeviation(0.3, "0.2 to 0.4 over MoCo's five runs"),
    "coco_det": COCO,
    "coco_insseg": COCO,
    "coco_keypoint": COCO,
    "voc07_svm": RunDeviation(0.4, "re-implementations of one protocol differ by 0.6"),
    "voc12_seg_fcn": RunDeviation(0.4, "re-runs are estimated to differ by 0.6"),
    "head_entropy_bits": RunDeviation(
        0.1, "the paper says close to; in bits, not points", reach=0.5
    ),
}
"""Deviations by task id, or by metric where it is not in percent; all other tasks have DEFAULT."""


def run_deviation(task: str) -> RunDeviation:
    """Return the deviation from run to run of a task id, or of a metric that has its own."""
    return RUN_DEVIATIONS.get(task, DEFAULT)
