"""Damaged files by seed, each with its expected end: python -m tests.transfer.convert.corpus.

Each file is written, read by another process within limits of time and memory, and deleted. With
--results, the counts become a section of results/reliability.md. Exit status: 0 every file ended as
expected, 1 one did not.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from benchmarks.reliability import Row, Section, write_section
from tests.transfer.convert.damage import KINDS, base_weights
from tests.transfer.convert.guarded import MAX_SECONDS, SPARE_BYTES, Outcome, Reader
from transfer.convert.architectures import is_optional
from transfer.running.console import print_line, progress

COUNTED = {
    "refused": "refused",
    "equal": "loaded equal",
    "changed": "changed, no checksum",
    "wrong load": "wrong loads",
    "execution": "executions",
    "traceback": "tracebacks",
    "above budget": "above budget",
}
"""Ends of files, and their columns."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Read damaged files and count what came of them."""

    seed: int = 0
    """Seed of all damage."""
    count: int = 1000
    """Number of files; the kinds take turns."""
    results: Path | None = None
    """Folder whose page of reliability gets the counts; printed only if not given."""


@dataclass(frozen=True)
class Read:
    """A file that was read."""

    kind: str
    number: int
    end: str
    """One of COUNTED."""
    is_expected: bool
    message: str


def read_corpus(seed: int, count: int, folder: Path, kinds: Sequence[str] = ()) -> list[Read]:
    """Read `count` damaged files of these kinds, or of all; each is written into `folder`."""
    reference, marker, path = (folder / name for name in ("reference.pt", "marker", "file.pth"))
    weights = {n: t.float() for n, t in base_weights().items() if not is_optional(n)}
    torch.save(weights, reference)
    kinds = kinds or list(KINDS)
    reads = []
    with Reader(reference) as reader, progress("corpus", "damage", count, "files") as counter:
        for number in range(count):
            kind = kinds[number % len(kinds)]
            damaged = KINDS[kind](random.Random(f"{seed} {number}"), marker)
            damaged.write(path)
            outcome = reader.read(path)
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


def count_by_kind(reads: list[Read]) -> tuple[Row, ...]:
    """Return a row per kind of damage."""
    rows = []
    for kind in dict.fromkeys(read.kind for read in reads):
        own = [read for read in reads if read.kind == kind]
        ends = Counter(read.end for read in own)
        failed = sum(not read.is_expected for read in own)
        reasons = []
        if ends["changed"]:
            reasons.append("the format has no checksum: other values in sound structures")
        if failed:
            reasons.append(f"{failed} ended otherwise than they should")
        rows.append(
            Row(
                kind=kind,
                tried=len(own),
                survived=len(own) - failed - ends["changed"],
                counts={title: ends[end] for end, title in COUNTED.items()},
                not_survived="; ".join(reasons),
            )
        )
    return tuple(rows)


def main(words: list[str]) -> int:
    """Run the command line; return the exit status."""
    request = tyro.cli(Request, args=words, description=__doc__)
    with tempfile.TemporaryDirectory() as folder:
        reads = read_corpus(request.seed, request.count, Path(folder))
    rows = count_by_kind(reads)
    section = Section(
        name="damaged_files",
        title="Damaged checkpoints",
        text=(
            f"{len(reads)} files of a ResNet-18, damaged at random, each read with at most "
            f"{MAX_SECONDS:g} s of processor time and {SPARE_BYTES / 1e9:g} GB of memory above its "
            f"size. A file survives if it ends as it should: refused with a reason, or loaded "
            f"equal to the original where the damage does not touch what it says."
        ),
        rows=rows,
        seed=request.seed,
        command=f"python -m tests.transfer.convert.corpus --seed {request.seed} "
        f"--count {request.count} --results results",
    )
    for read in reads:
        if not read.is_expected:
            print_line("corpus", f"file {read.number}, {read.kind}: {read.end}: {read.message}")
    for row in rows:
        print(f"{row.kind:<28} {row.survived} of {row.tried}  {row.not_survived}".rstrip())
    if request.results is not None:
        print(write_section(request.results, section))
    return int(not all(read.is_expected for read in reads))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
