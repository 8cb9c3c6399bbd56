"""Damaged files by seed, each with its expected end: python -m tests.transfer.convert.corpus.

Each file is written, read with at most 2 GB above its size and thirty seconds, and deleted. Exit
status: 0 every file ended as expected, 1 one did not.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pretrain.running.console import print_line, progress
from tests.transfer.convert.damage import KINDS, base_weights
from transfer.backbone import BackboneError, load_backbone
from transfer.convert.architectures import is_optional

MAX_SECONDS = 30.0
"""Processor time of one file, that of the process which opens pickles included.

That process ends after six seconds; other processes may hold the processor meanwhile.
"""
SPARE_BYTES = 2 * 10**9
"""Memory above the size of the file."""
MAX_MESSAGE = 10_000
"""Longest message in characters."""


class Outcome(NamedTuple):
    """Outcome of one file."""

    end: str
    """refused, equal, changed, execution, traceback or above budget."""
    message: str = ""
    kind: str = ""
    """Kind of damage, for a file of the corpus."""
    is_expected: bool = False


def read_guarded(path: Path, reference: Mapping[str, Tensor] | None = None) -> Outcome:
    """Read a file within the limits and compare a backbone in it with the reference."""
    start_s, before = sum(os.times()[:4]), resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = now + path.stat().st_size + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        outcome = _outcome(path, reference or {})
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    seconds = sum(os.times()[:4]) - start_s
    if seconds > MAX_SECONDS or len(outcome.message) > MAX_MESSAGE:
        return Outcome("above budget", f"{seconds:.1f} s, {outcome.message[:300]}")
    return outcome


def _outcome(path: Path, reference: Mapping[str, Tensor]) -> Outcome:
    try:
        found = load_backbone(path).state_dict
    except BackboneError as error:
        return Outcome("refused", str(error))
    except MemoryError as error:
        return Outcome("above budget", f"MemoryError {error}")
    except Exception as error:
        return Outcome("traceback", f"{type(error).__name__}: {str(error)[:300]}")
    is_equal = all(torch.equal(found[name], tensor) for name, tensor in reference.items())
    return Outcome("equal" if is_equal else "changed")


def read_corpus(seed: int, count: int, folder: Path, kinds: Sequence[str] = ()) -> list[Outcome]:
    """Read `count` damaged files of these kinds, or of all; each is written into `folder`."""
    marker, path = folder / "marker", folder / "file.pth"
    reference = {n: t.float() for n, t in base_weights().items() if not is_optional(n)}
    kinds = kinds or list(KINDS)
    reads = []
    with progress("corpus", "damage", count, "files") as counter:
        for number in range(count):
            kind = kinds[number % len(kinds)]
            damaged = KINDS[kind](random.Random(f"{seed} {number}"), marker)
            damaged.write(path)
            outcome = read_guarded(path, reference)
            path.unlink()
            end = "execution" if marker.exists() else outcome.end
            reads.append(Outcome(end, outcome.message[:300], kind, end in damaged.expected))
            marker.unlink(missing_ok=True)
            counter.add(1)
    return reads


def main(words: list[str]) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all damage")
    parser.add_argument("--count", type=int, default=1000, help="of files; the kinds take turns")
    request = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        reads = read_corpus(request.seed, request.count, Path(folder))
    for number, read in enumerate(reads):
        if not read.is_expected:
            print_line("corpus", f"file {number}, {read.kind}: {read.end}: {read.message}")
    for kind in dict.fromkeys(read.kind for read in reads):
        ends = Counter(read.end for read in reads if read.kind == kind)
        print(f"{kind:<28} {', '.join(f'{end} {number}' for end, number in ends.items())}")
    return int(not all(read.is_expected for read in reads))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
