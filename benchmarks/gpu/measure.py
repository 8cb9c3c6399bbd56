"""One measurement of a device in a process of its own: its name, cuda or cpu, and a file.

python -m benchmarks.gpu.measure "step of moco" cuda runs/answer.json
"""

import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from benchmarks.gpu import evaluation, pretraining
from pretrain.running.atomic_files import write_whole
from transfer.finetuning.loop import use_expandable_segments

MEASUREMENTS = pretraining.MEASUREMENTS | evaluation.MEASUREMENTS


def main(name: str, device: str, file: Path) -> None:
    """Write status, facts, the seconds that they took, and why there are none, as JSON."""
    started_s = time.monotonic()
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before CUDA starts
    use_expandable_segments()  # as trainings of detectors do
    status, facts, reason = "measured", {}, ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            facts = MEASUREMENTS[name](torch.device(device), Path(folder))
        except Exception as error:  # whatever it is, the page says it
            traceback.print_exc()
            status, reason = "failed", f"{type(error).__name__}: {error}".partition("\n")[0]
    seconds = time.monotonic() - started_s
    answer = {"status": status, "facts": facts, "reason": reason, "seconds": seconds}
    write_whole(file, json.dumps(answer).encode(), "--runs")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
