"""A campaign of kills: python -m tests.campaign --kills 200 --seed 0.

Each trial starts a command of the suite, disturbs it at a random moment, and starts the same
command again until it ends by itself. The result must equal that of an undisturbed run to the bit.
The same campaign command goes on after the last trial in its log.

subjects.py     the commands, their inputs, and what counts as their result
processes.py    commands in forked processes, and all processes below them
disturbance.py  the kinds of kills and stops
trial.py        one trial
campaign.py     all trials and their log
faults.py       faults of machines: --faults 1 does these in place of kills
damage.py       the kinds of damage that a fault does, and what must come of each
faulty.py       a command on a machine with a fault
corruptions.py  make-corruptions with noise in place of its package
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class Request:
    """Kill and stop commands of the suite at random moments, and compare their results."""

    kills: int = 200
    """Trials in total, those of earlier starts included."""
    seed: int = 0
    """Seed of subjects, kinds and moments."""
    faults: int = 0
    """Rounds of faults of machines, in place of kills."""
    minutes: float = 0.0
    """Time after which no further trial begins; 0: no limit."""
    subjects: str = ""
    """Names of subjects, separated by commas; all if not given."""
    folder: Path = Path("runs/campaign")
    """Folder of inputs, undisturbed results, the log, and the files of trials that failed."""


def main() -> int:
    """Run the campaign; return 0 if every trial was survived, else 1."""
    request = tyro.cli(Request, description=__doc__)
    # before torch is imported, for this process and all that it starts: threads would share cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return run_faults(request) if request.faults else run_kills(request)


def run_kills(request: Request) -> int:
    """Run the trials of the campaign; return the exit status."""
    from tests.campaign.campaign import run

    trials = run(
        request.folder,
        kills=request.kills,
        seed=request.seed,
        names=[name for name in request.subjects.split(",") if name],
        minutes=request.minutes,
    )
    return int(not all(trial.survived for trial in trials))


def run_faults(request: Request) -> int:
    """Do the faults of machines; return the exit status."""
    from tests.campaign.faults import run

    outcomes = run(
        request.folder, rounds=request.faults, seed=request.seed, minutes=request.minutes
    )
    return int(any(outcome.problem for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
