"""Damaged files by seed, each with its expected end: python -m tests.transfer.convert.corpus.

Each file is written, read within limits of time and memory, and deleted. Exit status: 0 every file
ended as expected, 1 one did not.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from tests.transfer.convert.damage import KINDS, base_weights
from tests.transfer.convert.guarded import Outcome, read_guarded
from transfer.convert.architectures import is_optional
from transfer.running.console import print_line, progress


@dataclass(frozen=True, kw_only=True)
class Request:
    """Read damaged files and count what came of them."""

    seed: int = 0
    """Seed of all damage."""
    count: int = 1000
    """Number of files; the kinds take turns."""


@dataclass(frozen=True)
class Read:
    """A file that was read."""

    kind: str
    number: int
    end: str
    """refused, equal, changed, wrong load, execution, traceback or above budget."""
    is_expected: bool
    message: str


def read_corpus(seed: int, count: int, folder: Path, kinds: Sequence[str] = ()) -> list[Read]:
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
            end = _end(outcome, marker, "changed" in damaged.expected)
            reads.append(Read(kind, number, end, end in damaged.expected, outcome.message[:300]))
            marker.unlink(missing_ok=True)
            counter.add(1)
    return reads


def _end(outcome: Outcome, marker: Path, may_change: bool) -> str:
    if marker.exists():
        return "execution"
    if outcome.end != "loaded":
        return outcome.end
    if outcome.num_different == 0:
        return "equal"
    return "changed" if may_change else "wrong load"


def main(words: list[str]) -> int:
    """Run the command line; return the exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    with tempfile.TemporaryDirectory() as folder:
        reads = read_corpus(request.seed, request.count, Path(folder))
    for read in reads:
        if not read.is_expected:
            print_line("corpus", f"file {read.number}, {read.kind}: {read.end}: {read.message}")
    for kind in dict.fromkeys(read.kind for read in reads):
        ends = Counter(read.end for read in reads if read.kind == kind)
        print(f"{kind:<28} {', '.join(f'{end} {number}' for end, number in ends.items())}")
    return int(not all(read.is_expected for read in reads))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
