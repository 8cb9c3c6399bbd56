"""Read files in a process of its own that may take thirty seconds and 2 GB above a file's size.

python -m tests.transfer.convert.guarded [REFERENCE] is that process: it reads a path per line, and
answers with a line of JSON. REFERENCE is a torch file of the weights to compare with.
"""

import json
import resource
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[3]
MAX_SECONDS = 30.0
"""Processor time of one file.

The budget of operations ends a file after five seconds on an idle processor of 2023; on one that
other processes used as well, twelve million stores in the memo took more than ten.
"""
SPARE_BYTES = 2 * 10**9
"""Memory above the size of the file."""
MAX_WAIT_SECONDS = 300.0
"""Time after which a process counts as waiting for something."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one file."""

    end: str
    """refused, loaded, traceback or above budget."""
    message: str = ""
    num_different: int = 0
    """Values of a loaded backbone that differ from the reference."""
    seconds: float = 0.0
    """Processor time."""


class Reader:
    """The process, which is started again after a file that ended it."""

    def __init__(self, reference: Path | None = None) -> None:
        self._words = [str(reference)] if reference else []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.transfer.convert.guarded", *self._words]
        process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def read(self, path: Path) -> Outcome:
        """Return what comes of a file."""
        self._process = self._process or self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        # processor time is limited by the process itself, since others may hold the processor
        answered, _, _ = select.select([self._process.stdout], [], [], MAX_WAIT_SECONDS)
        line = self._process.stdout.readline() if answered else ""
        if not line:
            self._end()
            return Outcome("above budget", "the process ended" if answered else "no answer")
        return Outcome(**json.loads(line))


def _limit_resources(file_bytes: int) -> None:
    """Let this process take 2 GB more than now, beside the mapped file, and thirty seconds."""
    _, most_seconds = resource.getrlimit(resource.RLIMIT_CPU)
    end = int(time.process_time() + MAX_SECONDS) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (end, most_seconds))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + file_bytes + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _attempt(path: Path, reference: dict[str, object] | None) -> Outcome:
    import torch

    from transfer.backbone import BackboneError, load_backbone

    start = time.process_time()
    try:
        backbone = load_backbone(path)
    except BackboneError as error:
        outcome = Outcome("refused", str(error))
    except MemoryError as error:
        outcome = Outcome("above budget", f"MemoryError {error}")
    except Exception as error:
        outcome = Outcome("traceback", f"{type(error).__name__}: {str(error)[:300]}")
    else:
        different = 0
        for name, tensor in (reference or {}).items():
            assert isinstance(tensor, torch.Tensor)
            different += int((backbone.state_dict[name] != tensor).sum())
        outcome = Outcome("loaded", num_different=different)
    seconds = time.process_time() - start
    if seconds > MAX_SECONDS or "MemoryError" in outcome.message or len(outcome.message) > 10_000:
        return Outcome("above budget", f"{seconds:.1f} s, {outcome.message[:300]}")
    return replace(outcome, seconds=seconds)


def main(words: list[str]) -> None:
    """Answer until the input ends."""
    import torch

    import transfer.convert.from_public
    import transfer.convert.read_file  # noqa: F401

    torch.set_num_threads(1)
    reference = torch.load(words[0], weights_only=True) if words else None
    print("ready", flush=True)
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        _limit_resources(path.stat().st_size)
        print(json.dumps(asdict(_attempt(path, reference))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
