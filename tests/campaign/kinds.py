"""The kinds of kills, stops and faults of machines that commands must survive."""

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.processes import Running, descendants, send
from tests.campaign.subjects import SUBJECTS, Places

NOT_WRITTEN = r"(cannot|could not) be written|File too large|not up to date"
KILLED = r"SIGKILL|has lost another process|memory (ran|has probably run) out"
LOCKS = r"locks"
CHANGED = (
    r"has changed while|were written while|is not the data|unreadable|cannot be (read|decoded)|"
    r"broken"
)
ANY = r""
PAUSES_S = (0.2, 3.0)
"""Shortest and longest time for which a process is stopped before it continues."""
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


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """Commands that are being damaged."""

    subject: str
    places: Places
    run: Running
    draw: random.Random
    spoiled: list[Path] = field(default_factory=list)
    """Files that no command can read any more."""

    @property
    def out(self) -> Path:
        """The folder that the commands write to."""
        return self.places.out


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of kill or fault; a sound machine comes after it."""

    damage: Callable[[Damaged], bool] | None = None
    """Done at a random moment; returns whether it could be done yet. None: nothing then."""
    repair: Callable[[Damaged], None] | None = None
    """Undoes the damage before the commands are started again."""
    reason: str = ANY
    """Pattern of the last lines of a command that fails."""
    fault: str = ""
    """One of `faulty.py` around each command."""
    copies: int = 1
    """How often each command is started."""
    subjects: tuple[str, ...] = tuple(SUBJECTS)


def kill_every_process(at: Damaged) -> bool:
    """Kill all at once, as a machine that loses power or a scheduler at a limit does."""
    at.run.kill_all()
    return True


def kill_the_group(at: Damaged) -> bool:
    """Kill a command and those of its processes that share its group."""
    os.killpg(at.draw.choice(at.run.leaders), signal.SIGKILL)
    return True


def kill_one_process(at: Damaged) -> bool:
    """Kill one of all processes, as the kernel does where memory runs out."""
    pids = descendants(os.getpid())
    send(signal.SIGKILL, [at.draw.choice(pids)] if pids else [])
    return True


def kill_a_started_process(at: Damaged) -> bool:
    """Kill a process that a command has started."""
    pids = [pid for pid in descendants(os.getpid()) if pid not in at.run.leaders]
    send(signal.SIGKILL, [at.draw.choice(pids)] if pids else [])
    return bool(pids)


def ask_the_command(at: Damaged) -> bool:
    """Ask one command to stop."""
    send(signal.SIGTERM, [at.draw.choice(at.run.leaders)])
    return True


def ask_every_process(at: Damaged) -> bool:
    """Ask all processes to stop, as a scheduler before its limit does."""
    send(signal.SIGTERM, descendants(os.getpid()))
    return True


def stop_and_continue(at: Damaged) -> bool:
    """Stop one process or all of them for a while, as a suspended job is."""
    pids = descendants(os.getpid())
    if pids and at.draw.random() < 0.5:
        pids = [at.draw.choice(pids)]
    send(signal.SIGSTOP, pids)
    time.sleep(at.draw.uniform(*PAUSES_S))
    send(signal.SIGCONT, pids)
    return True


def forbid_writes(at: Damaged) -> bool:
    """Let no process write to a file any more."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
    return True


def _an_image(at: Damaged) -> tuple[Path, Path]:
    """Return an image that the command reads, and where its content is kept meanwhile."""
    found = sorted((at.places.inputs / IMAGES_OF[at.subject]).rglob("*"))
    # drawn by the trial's folder, so that it is the same one when it is put back
    file = random.Random(at.subject).choice([f for f in found if f.suffix in (".jpg", ".JPEG")])
    return file, at.places.inputs / "replaced"


def replace_an_image(at: Damaged) -> bool:
    """Replace an image of the data by one of another size."""
    # a pre-training that has not listed its images yet is one of other images
    if at.subject == PRETRAINING and LISTED not in at.run.printed():
        return False
    file, kept = _an_image(at)
    others = (f for f in file.parent.iterdir() if f.stat().st_size != file.stat().st_size)
    shutil.copy(file, kept)
    shutil.copyfile(next(others), file)
    return True


def put_the_image_back(at: Damaged) -> None:
    """Restore the image; pre-training leaves it to the user to delete what it holds."""
    file, kept = _an_image(at)
    if kept.exists():
        shutil.copyfile(kept, file)
        kept.unlink()
    if any(at.run.results()):
        (at.out / "run" / "checkpoint.pt").unlink(missing_ok=True)


def damage_a_file(at: Damaged) -> None:
    """Cut a file of the killed command short or fill its end with zeros, as a dying machine."""
    found = [file for file in sorted(at.out.rglob("*")) if file.is_file() and _is_state(file)]
    if found:
        suffix = at.draw.choice(sorted({file.suffix for file in found}))
        file = at.draw.choice([file for file in found if file.suffix == suffix])
        content = file.read_bytes()
        start = at.draw.choice([0, at.draw.randrange(len(content))])
        zeros = bytes(len(content) - start) if at.draw.random() < 0.5 else b""
        file.write_bytes(content[:start] + zeros)
        at.spoiled.append(file)


def _is_state(file: Path) -> bool:
    """Return whether a command wrote a file and reads it again."""
    foreign = "tensorboard" in file.parts or file.name == "small-data.json" or file.is_symlink()
    return bool(file.stat().st_size) and not foreign


WRITERS = (
    *("SVM", "tables", "pre-training", "make-corruptions", "few labels", "linear probe"),
    *("curves", "detector", "segmentation", "run_all"),
)
KILLS: Mapping[str, Kind] = {
    "kill -9 of every process": Kind(damage=kill_every_process),
    "kill -9 of the process group": Kind(damage=kill_the_group),
    "kill -9 of one process": Kind(damage=kill_one_process),
    "SIGTERM to the command": Kind(damage=ask_the_command),
    "SIGTERM to every process": Kind(damage=ask_every_process),
    "SIGSTOP, then SIGCONT": Kind(damage=stop_and_continue),
}
FAULTS: Mapping[str, Kind] = {
    "no write succeeds from a random moment on": Kind(
        damage=forbid_writes, reason=NOT_WRITTEN, subjects=WRITERS
    ),
    "a process that a command has started is killed": Kind(
        damage=kill_a_started_process,
        reason=KILLED,
        subjects=(
            *("make-corruptions", "extraction, two processes", "pre-training, two processes"),
            "run_all --workers 2",
        ),
    ),
    "an image is replaced while a command runs": Kind(
        damage=replace_an_image,
        repair=put_the_image_back,
        reason=CHANGED,
        subjects=tuple(IMAGES_OF),
    ),
    "a file is cut short or filled with zeros": Kind(
        damage=kill_every_process,
        repair=damage_a_file,
        subjects=(*WRITERS[2:], "SVM", "extraction, two processes"),
    ),
    "locks are refused": Kind(
        fault="no-locks",
        reason=LOCKS,
        subjects=("SVM", "pre-training", "few labels", "linear probe"),
    ),
    "two machines do not see each other's locks": Kind(
        fault="unseen-locks",
        copies=2,
        subjects=(
            *("SVM", "pre-training", "linear probe", "extraction, two processes", "few labels"),
            *("detector", "run_all"),
        ),
    ),
}
