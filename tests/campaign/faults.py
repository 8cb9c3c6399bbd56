"""Faults of machines around the commands of the campaign: python -m tests.campaign --faults 1.

Each attempt does one kind of damage to one command, looks at the reason that it gives, and starts
it again on a sound machine. Survived: a command that fails says why in its last lines, and the same
command on a sound machine ends with the undisturbed result to the bit. A damaged file may be
refused by name, and is then deleted; a record that only the tables read is named there. A folder
that cannot be written is refused with exit status 2 and nothing is written. Three changes of data
cannot be noticed and are not tried: images replaced while a command runs and put back while it is
dead; others of the same size between two commands; others whose times are set back.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.campaign import damage
from tests.campaign.campaign import keep_logs, places_of, prepare_inputs, undisturbed_result
from tests.campaign.damage import Attempt, on_a_faulty_machine


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A kind of damage, and the subjects that it is done to."""

    attempt: Callable[[Attempt], str | None]
    """Does the damage; returns what was not survived, None if the command had ended before."""
    subjects: tuple[str, ...]
    mounts: bool = False
    """It mounts a file system, and is left out where the user may not do so."""


WRITERS = (
    *("SVM", "tables", "pre-training", "make-corruptions", "few labels", "linear probe"),
    *("curves", "detector", "segmentation", "run_all"),
)
FAULTS: Mapping[str, Fault] = {
    "no write succeeds from a random moment on": Fault(
        attempt=damage.failing_writes, subjects=WRITERS
    ),
    "the disk is full from a random moment on": Fault(
        attempt=damage.full_disk, subjects=(*WRITERS[1:], "SVM"), mounts=True
    ),
    "folders are read-only from a random moment on": Fault(
        attempt=damage.read_only_folder, subjects=(*WRITERS[2:], "SVM", "tables")
    ),
    "a folder of the command is a file, or read-only": Fault(
        attempt=damage.refused_folder,
        subjects=("SVM", "tables", "run_all", "pre-training", "curves", "snapshots"),
    ),
    "a process that a command has started is killed": Fault(
        attempt=damage.killed_worker,
        subjects=(
            *("make-corruptions", "extraction, two processes", "pre-training, two processes"),
            "run_all --workers 2",
        ),
    ),
    "an image is replaced while a command runs": Fault(
        attempt=damage.replaced_image, subjects=tuple(damage.IMAGES_OF)
    ),
    "a file is cut short or filled with zeros": Fault(
        attempt=damage.damaged_file, subjects=(*WRITERS, "extraction, two processes")
    ),
    "the clock jumps": Fault(
        attempt=on_a_faulty_machine("jumping-clock", damage.NEVER),
        subjects=("SVM", "pre-training", "curves", "few labels"),
    ),
    "locks are refused": Fault(
        attempt=on_a_faulty_machine("no-locks", damage.LOCKS),
        subjects=("SVM", "pre-training", "few labels", "linear probe"),
    ),
    "two machines do not see each other's locks": Fault(
        attempt=on_a_faulty_machine("unseen-locks", ".", copies=2),
        subjects=(
            *("SVM", "pre-training", "linear probe", "extraction, two processes", "few labels"),
            *("detector", "run_all"),
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one attempt, a line of the log."""

    kind: str
    number: int
    subject: str
    problem: str
    """Explanation of what was not survived; empty if all was."""
    in_time: bool = True
    """False if the command ended before the damage; nothing was tried then."""


def run(folder: Path, *, rounds: int, seed: int, minutes: float = 0.0) -> list[Outcome]:
    """Make the attempts that the log lacks; return the outcomes of all.

    rounds: attempts for each kind and subject. minutes: time after which no attempt begins; 0: no
    limit.
    """
    folder = folder.resolve()
    inputs, log = prepare_inputs(folder), folder / f"faults-seed{seed}.jsonl"
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    outcomes = [Outcome(**json.loads(line)) for line in lines]
    mounts = damage.may_mount(folder / "mount")
    done = {(outcome.kind, outcome.number) for outcome in outcomes}
    most = rounds * max(len(fault.subjects) for fault in FAULTS.values())
    planned = [
        (kind, number)
        for number in range(most)
        for kind, fault in FAULTS.items()
        if (mounts or not fault.mounts)
        and number < rounds * len(fault.subjects)
        and (kind, number) not in done
    ]
    begin_s = time.monotonic()
    for kind, number in planned:
        if minutes and time.monotonic() - begin_s > 60 * minutes:
            break
        end = _attempt(folder, inputs, kind, number, seed)
        outcomes.append(end)
        with log.open("a") as file:
            file.write(json.dumps(asdict(end)) + "\n")
        word = end.problem or ("survived" if end.in_time else "too late")
        print(f"{kind}  {end.subject}  {word}", file=sys.stderr, flush=True)
    return outcomes


def _attempt(folder: Path, inputs: Path, kind: str, number: int, seed: int) -> Outcome:
    fault = FAULTS[kind]
    subject = fault.subjects[number % len(fault.subjects)]
    places = places_of(folder, inputs, subject)
    attempt = Attempt(
        subject=subject,
        expected=undisturbed_result(folder, subject, places),
        places=places,
        draw=random.Random(f"{seed} {kind} {number}"),
    )
    problem = fault.attempt(attempt)
    if problem:
        keep_logs(folder / "failed" / f"{kind} {number}", places, failed=True)
    return Outcome(
        kind=kind,
        number=number,
        subject=subject,
        problem=problem or "",
        in_time=problem is not None,
    )
