"""A campaign of kills: python -m tests.campaign --kills 200 --seed 0.

Each trial starts a command of the suite on small generated data (ResNet-18, smoke schedules, one
thread, CPU). It kills the command at a random moment within the duration of an undisturbed run, and
starts it again until it ends. The metrics and details of records, the tensors, the losses, and the
bytes of features, tables and images must equal the undisturbed ones.

subjects.py     the commands and their inputs
processes.py    commands in forked processes, and all processes below them
trial.py        one trial: the kinds of kills, and when one is survived
outcome.py      the result of a command, as a digest of each part
"""

import json
import os
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
import tyro

from tests.campaign.processes import adopt_orphans
from tests.campaign.subjects import SUBJECTS, TrialFolders, write_inputs
from tests.campaign.trial import run_trial, run_undisturbed

IMPORTED = (
    "benchmarks.planning.plan",
    "benchmarks.tables",
    "pretrain.start",
    "tensorboard.compat",
    "torch.distributed",
    "transfer.cells.command",
    "transfer.cells.job",
)
"""Modules imported before forking.

None of them is the main module of a command.
"""


@dataclass(frozen=True, kw_only=True)
class CampaignOptions:
    """Kill commands of the suite at random moments, and compare their results."""

    kills: int = 200
    """Total number of trials."""
    seed: int = 0
    """Seed of the kinds and moments of kills."""
    subjects: tuple[str, ...] = ()
    """Names of subjects; all if not given."""
    folder: Path = Path("runs/campaign")
    """Folder of inputs, undisturbed results, the log, and failed trials."""


def main() -> int:
    """Run the trials; return 0 if all were survived, otherwise 1."""
    request = tyro.cli(CampaignOptions, description=__doc__)
    # one thread in this process, its forks and all that they start: others would share cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    names = list(request.subjects or SUBJECTS)
    folder = request.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    adopt_orphans()
    for module in IMPORTED:
        import_module(module)
    write_inputs(folder / "inputs", names)
    log = folder / f"trials-seed{request.seed}.jsonl"
    problems, undisturbed = 0, {}
    for number in range(request.kills):
        name, subject = f"{request.seed} {number}", names[number % len(names)]
        folders = TrialFolders(inputs=folder / "inputs", out=folder / "work" / _slug(subject))
        if subject not in undisturbed:
            undisturbed[subject] = run_undisturbed(subject, folders)
        trial = run_trial(name, subject, undisturbed[subject], folders)
        problems += bool(trial.problem)
        with log.open("a") as file:
            file.write(json.dumps(trial._asdict()) + "\n")
        print(json.dumps(trial._asdict()), file=sys.stderr, flush=True)
        if trial.problem:
            shutil.copytree(folders.out, folder / "failed" / _slug(name), symlinks=True)
        shutil.rmtree(folders.out, ignore_errors=True)
    return int(bool(problems))


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text.lower())


if __name__ == "__main__":
    sys.exit(main())
