"""Checks of a device, run by commands in processes of their own, which answer in lines of JSON.

A GPU that has met an error answers nothing more to its process, so a command that ends early is
started again behind the check that ended it. Answers are kept, so the same request goes on.
"""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from transfer.running.atomic_files import explain_write_errors

COMMANDS = ("pretrain.checks", "transfer.checks")
"""Modules that check, in the order in which they run."""
PATIENCE = 10.0
"""A check may take so many times its expected time, and at least MIN_PATIENCE_S."""
MIN_PATIENCE_S = 120.0
START_S = 120.0
"""Seconds to wait for a command's first line, which needs torch and the device's driver."""

Status = Literal["passed", "failed", "skipped", "measured"]


class ChecksError(RuntimeError):
    """A command that should check does not answer as agreed."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check that a command knows."""

    command: str
    name: str
    group: str
    expected_s: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came of a check."""

    command: str
    check: str
    group: str
    status: Status
    seconds: float
    reason: str = ""
    """Why it failed or was skipped, in one line."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Measured numbers by name: differences with their bounds, rates, milliseconds."""


def known_checks(device: str, commands: Sequence[str] = COMMANDS) -> list[Check]:
    """Return the checks of all commands in their order; ChecksError if a command cannot list."""
    checks = []
    for command in commands:
        words = [sys.executable, "-m", command, "--list", "--device", device]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ChecksError(f"python -m {command} --list: {_last_line(done.stderr)}")
        for line in done.stdout.splitlines():
            entry = json.loads(line)
            checks.append(
                Check(
                    command=command,
                    name=entry["check"],
                    group=entry["group"],
                    expected_s=float(entry["seconds"]),
                )
            )
    return checks


def run_checks(
    checks: Sequence[Check], device: str, folder: Path, deadline_s: float
) -> Iterator[Answer]:
    """Yield the answer to each check, in order, until the deadline (time.monotonic()).

    Checks that the deadline cuts off have no answer. What the commands print on stderr is appended
    to FOLDER/log.txt.
    """
    for command in dict.fromkeys(check.command for check in checks):
        left = [check for check in checks if check.command == command]
        while left and time.monotonic() < deadline_s:
            answered = 0
            for answer in _answers(command, left, device, folder, deadline_s):
                yield answer
                answered += 1
            if not answered:
                break  # the time is over
            left = left[answered:]


def _answers(
    command: str, checks: Sequence[Check], device: str, folder: Path, deadline_s: float
) -> Iterator[Answer]:
    """Yield the answers of one process; the last one may say how the process ended."""
    with explain_write_errors(folder / "log.txt"):
        folder.mkdir(parents=True, exist_ok=True)
        log = (folder / "log.txt").open("a")
    words = [sys.executable, "-m", command, "--device", device, "--folder", str(folder / "work")]
    only = [word for check in checks for word in ("--only", check.name)]
    with log, subprocess.Popen([*words, *only], stdout=subprocess.PIPE, stderr=log) as process:
        lines = _lines(process)
        try:
            for place, check in enumerate(checks):
                patience_s = max(MIN_PATIENCE_S, PATIENCE * check.expected_s)
                patience_s += START_S if place == 0 else 0.0
                until_s = min(time.monotonic() + patience_s, deadline_s)
                try:
                    answer = _answer(command, check, lines, until_s)
                except TimeoutError:
                    if time.monotonic() < deadline_s:
                        yield _failure(check, patience_s, f"no answer within {patience_s:.0f} s")
                    return
                if answer is None:
                    process.wait()
                    reason = _last_line((folder / "log.txt").read_text(errors="replace"))
                    yield _failure(check, 0.0, f"ended with {process.returncode}: {reason}")
                    return
                yield answer
        finally:
            process.kill()


def _lines(process: "subprocess.Popen[bytes]") -> "queue.Queue[bytes | None]":
    """Return the lines of a process as they come, None at their end."""
    lines: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _answer(
    command: str, check: Check, lines: "queue.Queue[bytes | None]", until_s: float
) -> Answer | None:
    """Return the answer to a check, None if the process ends first; TimeoutError if it is late."""
    while True:
        try:
            line = lines.get(timeout=max(until_s - time.monotonic(), 0.01))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            return None
        entry = _entry(line)
        if entry.get("check") == check.name and entry.get("status") in get_args(Status):
            return Answer(command=command, **{name: entry[name] for name in _FIELDS})


_FIELDS = ("check", "group", "status", "seconds", "reason", "facts")


def _entry(line: bytes) -> dict[str, Any]:
    """Return the object of a line of JSON, an empty one for any other line."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _failure(check: Check, seconds: float, reason: str) -> Answer:
    return Answer(
        command=check.command,
        check=check.name,
        group=check.group,
        status="failed",
        seconds=seconds,
        reason=reason,
    )


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


class Kept:
    """Answers of one commit on one machine, a line each, so that the same request goes on."""

    def __init__(self, path: Path, commit: str) -> None:
        self.path = path
        self.commit = commit

    def read(self) -> dict[tuple[str, str], Answer]:
        """Return the answers by command and check; a line that was cut short is left out."""
        if not self.path.exists():
            return {}
        found = {}
        for line in self.path.read_bytes().splitlines():
            entry = _entry(line)
            if entry.pop("commit", None) == self.commit and {"command", *_FIELDS} <= entry.keys():
                answer = Answer(**entry)
                found[answer.command, answer.check] = answer
        return found

    def add(self, answer: Answer) -> None:
        """Append an answer; WriteError if it cannot be written."""
        with explain_write_errors(self.path, "--runs"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                # a line break first, in case the line before was cut short
                file.write("\n" + json.dumps(asdict(answer) | {"commit": self.commit}) + "\n")
