"""Kinds of damage that are done to commands of the campaign, each with what must come of it.

A kind is a function of an `Attempt`. It returns what is wrong, an empty text if all was survived,
and None if the command ended before the damage.
"""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tests.campaign.outcome import CACHE, differences, outcome
from tests.campaign.processes import Commands, Running, descendants, running, send
from tests.campaign.subjects import Places
from tests.campaign.trial import Undisturbed, commands_of, start_again, start_anew

NOT_WRITTEN = r"(cannot|could not) be written|File too large|not up to date"
REFUSED = r"cannot be (written|the folder of a run)"
KILLED = r"SIGKILL|has lost another process|memory (ran|has probably run) out"
LOCKS = r"locks"
CHANGED = (
    r"has changed while|were written while|is not the data|unreadable|cannot be (read|decoded)|"
    r"broken"
)
NEVER = r"(?!)"
"""Pattern that matches nothing: the command may not fail."""
LAST_LINES = 4
"""Number of last lines of a failed command that must say why."""
MB = 2**20
LARGE, MAX_SLACK = 2048 * MB, 64 * 1024
"""Size of a file system before it is full, and the most bytes that are free once it is."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One kind of damage to one subject."""

    subject: str
    expected: Undisturbed
    places: Places
    draw: random.Random

    @property
    def out(self) -> Path:
        """The folder that the commands write to."""
        return self.places.out

    def commands(self, fault: str = "", copies: int = 1) -> Commands:
        """Return the commands, each `copies` times; fault: one of `faulty.py` around each."""
        words = commands_of(self.subject, self.places) * copies
        around = ("tests.campaign.faulty", fault) if fault else ()
        return tuple((*around, *command) for command in words)

    def start(self, commands: Commands) -> AbstractContextManager[Running]:
        """Empty the folder and start commands in it."""
        start_anew(self.subject, self.places)
        return running(commands, self.out.with_suffix(".log"))

    def random_moment_s(self) -> float:
        """Return a time within that of the undisturbed commands."""
        return self.draw.random() * self.expected.duration_s

    def compare(self) -> str:
        """Return how the result differs from the undisturbed one; empty if it does not."""
        return differences(self.expected.parts, outcome(self.out))

    def run_again(self) -> str:
        """Start the commands on a sound machine; return what is wrong, or nothing."""
        return start_again(self.commands(), self.places, self.expected, []) or self.compare()


Damage = Callable[[Attempt, Running], bool]
"""Damage of a running command; returns whether it could be done yet."""


def disturb(
    attempt: Attempt,
    damage: Damage,
    reason: str,
    repair: Callable[[bool], None] | None = None,
    fault: str = "",
) -> str | None:
    """Damage a running command; return what is wrong with its end, its reason, or its result.

    reason: pattern of the last lines of a command that fails. repair: undoes the damage before the
    command is started again; it is told whether the command has failed. fault: one of `faulty.py`
    around the damaged command.
    """
    expected = attempt.expected
    with attempt.start(attempt.commands(fault)) as run:
        if run.wait(attempt.random_moment_s()):
            return None
        while not damage(attempt, run):
            if run.wait(0.0):
                return None
        if not run.wait(expected.limit_s):
            return "hangs"
        run.wait_for_orphans(5)
        failed = any(run.results())
        if problem := wrong_reason(run, reason):
            return problem
    if repair is not None:
        repair(failed)
        # a result of other data is right until they are put back: its record names the data
        failed = failed or bool(attempt.compare())
    return attempt.run_again() if failed else attempt.compare()


def wrong_reason(run: Running, reason: str) -> str:
    """Return which statuses lack a reason in the last lines of a failed command; else nothing.

    Lines that tell of a failure count as well, wherever they are.
    """
    for text in run.printed_by_failed():
        lines = text.splitlines()
        # a run over many cells tells each failure when it happens, and ends with the tables
        told = [line for line in lines if "failed:" in line] + lines[-LAST_LINES:]
        if not re.search(reason, "\n".join(told)):
            return f"{run.results()} without the reason: {run.last_line()}"
    return ""


def forbid_writes(attempt: Attempt, run: Running) -> bool:
    """Let no process write to a file any more."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
    return True


def kill_a_started_process(attempt: Attempt, run: Running) -> bool:
    """Kill a process that a command has started, as the kernel does where memory runs out."""
    pids = [pid for pid in descendants(os.getpid()) if pid not in run.leaders]
    if pids:
        send(signal.SIGKILL, [attempt.draw.choice(pids)])
    return bool(pids)


def failing_writes(attempt: Attempt) -> str | None:
    """Forbid all writes from a random moment on."""
    return disturb(attempt, forbid_writes, NOT_WRITTEN)


def killed_worker(attempt: Attempt) -> str | None:
    """Kill a process that a command has started."""
    return disturb(attempt, kill_a_started_process, KILLED)


def full_disk(attempt: Attempt) -> str | None:
    """Let a file system of its own become full at a random moment; later it has space again."""
    with file_system(attempt.out):

        def fill(attempt: Attempt, run: Running) -> bool:
            state = os.statvfs(attempt.out)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            # a size of 0 would mean no limit; one below what is used is refused
            size = max(used, state.f_frsize) + attempt.draw.randrange(MAX_SLACK)
            return _resize(attempt.out, size)

        def empty(failed: bool) -> None:
            _resize(attempt.out, LARGE)

        return disturb(attempt, fill, NOT_WRITTEN, repair=empty)


@contextmanager
def file_system(folder: Path) -> Iterator[None]:
    """Mount a file system in memory at a folder; its files are in the folder afterwards.

    CalledProcessError where this user may not mount.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder.with_name(f"{folder.name}.kept")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={LARGE}", "tmpfs", folder], check=True)
    try:
        yield
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept, symlinks=True)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
    shutil.rmtree(folder)
    kept.rename(folder)


def _resize(folder: Path, size: int) -> bool:
    """Resize a mounted file system; return whether it was not fuller than that meanwhile."""
    words = ["mount", "-o", f"remount,size={size}", str(folder)]
    return subprocess.run(words, capture_output=True).returncode == 0


def may_mount(folder: Path) -> bool:
    """Return whether this user may mount a file system at an empty folder, as only root may."""
    try:
        with file_system(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def read_only_folder(attempt: Attempt) -> str | None:
    """Make every folder and file of the commands read-only at a random moment."""

    def forbid(attempt: Attempt, run: Running) -> bool:
        set_writable(attempt.out, writable=False)
        return True

    def allow(failed: bool) -> None:
        set_writable(attempt.out, writable=True)

    return disturb(attempt, forbid, NOT_WRITTEN, repair=allow, fault="no-privileges")


def set_writable(folder: Path, *, writable: bool) -> None:
    """Allow or forbid writes to a folder and all below it, from the top down."""
    for place, _, names in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with suppress(FileNotFoundError):  # deleted meanwhile
                if not path.is_symlink():
                    mode = path.stat().st_mode
                    path.chmod(mode | 0o200 if writable else mode & ~0o222)


def refused_folder(attempt: Attempt) -> str | None:
    """Give a command a folder that is a file or read-only: it must refuse it before any work."""
    start_anew(attempt.subject, attempt.places)
    words = [word for command in attempt.commands() for word in command]
    options = [i for i, word in enumerate(words) if word in ("--results", "--runs", "--out")]
    option = attempt.draw.choice(options)
    folder, is_file = Path(words[option + 1]), attempt.draw.random() < 0.5
    if is_file:
        shutil.rmtree(folder, ignore_errors=True)
        folder.touch()
    else:
        folder.mkdir(exist_ok=True)
        set_writable(folder, writable=False)
    before = _tree(attempt.out)
    what = f"{words[option]} {'is a file' if is_file else 'is read-only'}"
    with running(attempt.commands("no-privileges"), attempt.out.with_suffix(".log")) as run:
        if not run.wait(attempt.expected.limit_s):
            return f"{what}: hangs"
        printed = run.printed()
        if set(run.results()) != {2} or not re.search(REFUSED, printed):
            return f"{what}: ends with {run.results()}: {run.last_line()}"
        if "Traceback" in printed:
            return f"{what}: prints a traceback"
    return f"{what}: something was written" if _tree(attempt.out) != before else ""


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of change of everything below a folder."""
    states = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    return {str(path): (state.st_size, state.st_mtime_ns) for path, state in states.items()}


PRETRAINING, LISTED = "pre-training", " images of "
"""Name of a subject, and a part of the line that it prints once it has listed its images."""
IMAGES_OF = {
    "SVM": "data/VOCdevkit/VOC2007",
    "detector": "data/coco",
    "segmentation": "data/VOCdevkit/VOC2012",
    "few labels": "data/imagenet",
    PRETRAINING: "images",
}
"""Folder of the images that a subject reads."""


def replaced_image(attempt: Attempt) -> str | None:
    """Replace an image of the data by another one while the command runs, then put it back."""
    inputs = attempt.out.with_name("inputs")
    shutil.rmtree(inputs, ignore_errors=True)
    shutil.copytree(attempt.places.inputs, inputs, symlinks=True)
    found = sorted((inputs / IMAGES_OF[attempt.subject]).rglob("*"))
    files = [file for file in found if file.suffix in (".jpg", ".JPEG")]
    file = attempt.draw.choice(files)
    content = file.read_bytes()
    other = next(f.read_bytes() for f in files if f.stat().st_size != len(content))
    changed = replace(attempt, places=Places(inputs=inputs, out=attempt.out))

    def put_other(attempt: Attempt, run: Running) -> bool:
        # a pre-training that has not listed its images yet is one of other images
        if attempt.subject == PRETRAINING and LISTED not in run.printed():
            return False
        file.write_bytes(other)
        return True

    def put_back(failed: bool) -> None:
        file.write_bytes(content)
        if failed:  # pre-training leaves the choice to delete it, or to accept what it holds
            (attempt.out / "run" / "checkpoint.pt").unlink(missing_ok=True)

    return disturb(changed, put_other, CHANGED, repair=put_back)


def damaged_file(attempt: Attempt) -> str | None:
    """Kill the command, then cut a file short or fill its end with zeros, as a dying machine."""
    draw, out = attempt.draw, attempt.out
    with attempt.start(attempt.commands()) as run:
        read_only = set(out.rglob("*"))  # what the command finds there it does not write again
        # beyond 1, the command has ended: its result is damaged
        run.wait(draw.uniform(0.2, 1.5) * attempt.expected.duration_s)
    damaged = _draw_file(draw, out)
    if damaged is None:
        return None
    content = damaged.read_bytes()
    start = draw.choice([0, draw.randrange(len(content))])
    zeros = bytes(len(content) - start) if draw.random() < 0.5 else b""
    damaged.write_bytes(content[:start] + zeros)
    name = damaged.relative_to(out).as_posix()
    what = f"{name} {'zeros' if zeros else 'cut'} from {start} of {len(content)}"
    if damaged in read_only:
        problem = _run_without(attempt, damaged)
        damaged.write_bytes(content)
        problem = problem or attempt.run_again()
        return f"{what}: {problem}" if problem else ""
    problem = attempt.run_again()
    if problem and damaged.name in problem and "ends with" in problem:
        damaged.unlink()  # as the refusal says
        problem = attempt.run_again()
    if problem and name.startswith(CACHE):
        # a finished record is not computed again, so nothing has read the damaged entry yet
        shutil.rmtree(out / "results")
        problem = attempt.run_again()
    return f"{what}: {problem}" if problem else ""


def _run_without(attempt: Attempt, record: Path) -> str:
    """Run a command that reads a damaged record; return what is wrong, or nothing.

    Nothing can make the record again here, so the tables must name it.
    """
    problem = start_again(attempt.commands(), attempt.places, attempt.expected, [])
    overview = attempt.out / "results" / "tables" / "overview.md"
    if not problem and record.name not in overview.read_text():
        problem = "the overview does not name it"
    return problem


def _draw_file(draw: random.Random, out: Path) -> Path | None:
    """Return a file that a command reads again, of a kind drawn first; None if there is none."""
    found = [file for file in sorted(out.rglob("*")) if file.is_file() and not file.is_symlink()]
    files = [file for file in found if file.stat().st_size and _is_state(file.relative_to(out))]
    if not files:
        return None
    suffix = draw.choice(sorted({file.suffix for file in files}))
    return draw.choice([file for file in files if file.suffix == suffix])


def _is_state(name: Path) -> bool:
    """Return whether a command reads the file again; the data and event files are not its own."""
    return "tensorboard" not in name.parts and name.name != "small-data.json"


def on_a_faulty_machine(
    fault: str, reason: str, copies: int = 1
) -> Callable[[Attempt], str | None]:
    """Return the attempt that runs commands with a fault of `faulty.py`, then without.

    reason: pattern of the last lines of a command that fails. copies: how often each is started.
    """

    def run_there(attempt: Attempt) -> str:
        with attempt.start(attempt.commands(fault, copies)) as run:
            if not run.wait(copies * attempt.expected.limit_s):
                return "hangs"
            if problem := wrong_reason(run, reason):
                return problem
        return attempt.run_again()

    return run_there
