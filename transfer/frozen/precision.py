"""The arithmetic of frozen networks, unless the user requests one."""

from typing import Literal

from pretrain.running.processes import num_gpus
from transfer.backbone import Precision

RequestedPrecision = Precision | Literal["auto"]
"""Requested arithmetic; auto: bfloat16 on a GPU, float32 elsewhere."""


def feature_precision(requested: RequestedPrecision) -> Precision:
    """Return the arithmetic of frozen networks on this machine.

    "auto" on a CPU is float32 without folded norms. Folding would save a sixth of the time, but
    would change the last bits of all float32 features in caches, records and unfinished trainings.
    """
    if requested == "auto":
        return "bfloat16" if num_gpus() else "float32"
    return requested
