"""Batches that several processes share against one process with the whole batch.

torchrun starts the processes: one for each GPU with nccl, or two with gloo on a CPU. Each runs
shared_batch.py, which this process runs as well, with all images.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from pretrain.checks.catalog import SHARED
from pretrain.checks.comparison import FLOAT32_UNITS, compare, summarize
from pretrain.checks.place import Place
from pretrain.checks.report import Fact, Outcome, judged, skipped
from pretrain.checks.shared_batch import results

ROOT = Path(__file__).parents[2]
LIMIT_S = 90
"""Seconds after which processes that wait for each other are ended."""
MOST_PROCESSES = 8


class StartedError(RuntimeError):
    """The processes have failed or took too long."""


def num_processes(place: Place) -> int:
    """Return the number of processes that can share a batch here; 1: there is one GPU."""
    return min(torch.cuda.device_count(), MOST_PROCESSES) if place.on_gpu else 2


def shared_batch(place: Place, part: str) -> Outcome:
    """Compare one part of pre-training, computed by several processes and by one."""
    number = num_processes(place)
    if number == 1:
        return skipped("one GPU")
    found = in_processes(place, number)[part]
    expected = results(part, place.device, 1, 0, groups=number)
    moved = results(part, place.device, 1, 0, groups=number, changed=True)
    failures, facts = summarize(compare(found, expected, [moved], units=FLOAT32_UNITS))
    more: dict[str, Fact] = {"processes": number, "backend": "nccl" if place.on_gpu else "gloo"}
    return judged(failures, facts | more)


@lru_cache(maxsize=1)
def in_processes(place: Place, number: int) -> dict[str, dict[str, Any]]:
    """Return the results of all parts as several processes compute them; they start once."""
    path = place.folder / "shared_batch.pt"
    launch("pretrain.checks.shared_batch", number, [place.device.type, str(path)])
    found: dict[str, dict[str, Any]] = torch.load(path)
    if found.keys() != set(SHARED):
        raise StartedError(f"{path} holds {', '.join(found)}, not {', '.join(SHARED)}")
    return found


def launch(module: str, number: int, words: Sequence[str], limit_s: float = LIMIT_S) -> None:
    """Run a module in processes that torchrun starts; raise a StartedError if they fail."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", module, *words]
    # the module is found wherever the command was started
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=2,  # of what started this process, stdout has lines of JSON only
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        _, messages = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun passes it on to the processes
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
        raise StartedError(f"{number} processes of {module} took over {limit_s:g} s") from None
    sys.stderr.write(messages)
    if process.returncode:
        raise StartedError(f"{number} processes of {module} failed: {cause(messages)}")


def cause(messages: str) -> str:
    """Return the line of an error among the messages of torchrun and its processes."""
    lines = [line.strip() for line in messages.splitlines()]
    errors = [line.partition("]: ")[2] or line for line in lines if is_error(line)]
    return errors[0] if errors else "no reason was printed"


def is_error(line: str) -> bool:
    """Return whether a line is the last one of a traceback, such as "ValueError: ..."."""
    words = line.partition("]: ")[2] or line
    return words.partition(":")[0].split(".")[-1].endswith("Error")
