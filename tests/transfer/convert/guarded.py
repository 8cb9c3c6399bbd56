"""What comes of a file that is read here, with at most 2 GB above its size and thirty seconds."""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from transfer.backbone import BackboneError, load_backbone

MAX_SECONDS = 30.0
"""Processor time of one file, that of the process which opens pickles included.

That process ends after six seconds; other processes may hold the processor meanwhile.
"""
SPARE_BYTES = 2 * 10**9
"""Memory above the size of the file."""
MAX_MESSAGE = 10_000
"""Longest message in characters."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one file."""

    end: str
    """refused, loaded, traceback or above budget."""
    message: str = ""
    num_different: int = 0
    """Values of a loaded backbone that differ from the reference."""


def read_guarded(path: Path, reference: Mapping[str, Tensor] | None = None) -> Outcome:
    """Read a file and compare a backbone in it with the reference."""
    start_s = _processor_s()
    with _limited_memory(path.stat().st_size + SPARE_BYTES):
        outcome = _attempt(path, reference or {})
    seconds = _processor_s() - start_s
    if seconds > MAX_SECONDS or len(outcome.message) > MAX_MESSAGE:
        return Outcome("above budget", f"{seconds:.1f} s, {outcome.message[:300]}")
    return outcome


def _attempt(path: Path, reference: Mapping[str, Tensor]) -> Outcome:
    try:
        found = load_backbone(path).state_dict
    except BackboneError as error:
        return Outcome("refused", str(error))
    except MemoryError as error:
        return Outcome("above budget", f"MemoryError {error}")
    except Exception as error:
        return Outcome("traceback", f"{type(error).__name__}: {str(error)[:300]}")
    different = sum(int((found[name] != tensor).sum()) for name, tensor in reference.items())
    return Outcome("loaded", num_different=different)


def _processor_s() -> float:
    own, others = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


@contextmanager
def _limited_memory(spare_bytes: int) -> Iterator[None]:
    """Let this process take only so much more than now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (pages * resource.getpagesize() + spare_bytes, before[1])
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
