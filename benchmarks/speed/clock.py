"""Time of a measurement."""

import os
import time

import torch


def seconds() -> float:
    """Return the processor time of this process and of its ended loader processes, in s.

    With a GPU, wait until it has done its work and return the wall time.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    ended = os.times()  # its resolution is 0.01 s, so process_time is used for this process
    return time.process_time() + ended.children_user + ended.children_system
