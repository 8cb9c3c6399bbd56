"""All trials and their log.

Commands of the suite on small generated data (ResNet-18, smoke schedules, one thread, CPU) are
disturbed once, at a moment drawn uniformly over the time of an undisturbed run, and then started
again with the same words until they end by themselves. Survived: the metrics and details of
records, the tensors of backbones and checkpoints, the losses, and the bytes of features, tables and
images equal those of the undisturbed run to the bit. A trial whose command ended before its moment
is counted as too late, and is not tried again.
"""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tests.campaign.processes import Commands, adopt_orphans, running
from tests.campaign.subjects import SUBJECTS, Places, write_inputs
from tests.campaign.trial import Trial, Undisturbed, run_trial, run_undisturbed

IMPORTED = (
    "benchmarks.planning.plan",
    "benchmarks.tables",
    "pretrain.start",
    "tensorboard.compat",
    "tests.campaign.corruptions",
    "torch.distributed",
    "transfer.cells.command",
    "transfer.cells.many_gpus",
)
"""Modules that forks need not import; none of them is the main module of a command."""


def run(
    folder: Path, *, kills: int, seed: int, names: Sequence[str] = (), minutes: float = 0.0
) -> list[Trial]:
    """Run the trials that the log lacks, until there are `kills`; return all of this seed.

    names: subjects; all if empty. minutes: time after which no trial begins; 0: no limit.
    ValueError for an unknown subject.
    """
    unknown = [name for name in names if name not in SUBJECTS]
    if unknown:
        raise ValueError(f"no subject is called {unknown[0]!r}; known are {', '.join(SUBJECTS)}")
    names = list(names or SUBJECTS)
    folder = folder.resolve()
    inputs, log = prepare_inputs(folder), folder / f"trials-seed{seed}.jsonl"
    trials = read_trials(log)
    begin_s = time.monotonic()
    for number in range(kills):
        if number in {trial.number for trial in trials}:
            continue
        if minutes and time.monotonic() - begin_s > 60 * minutes:
            break
        subject = names[number % len(names)]
        places = places_of(folder, inputs, subject)
        expected = undisturbed_result(folder, subject, places)
        trial = run_trial(number, seed, names, expected, places)
        with log.open("a") as file:
            file.write(trial.line() + "\n")
        trials.append(trial)
        _report(trial, folder, places)
    return trials


def prepare_inputs(folder: Path) -> Path:
    """Import what forks need, write the inputs of all subjects, and return their folder."""
    adopt_orphans()
    for module in IMPORTED:
        import_module(module)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = folder / "inputs"
    write_inputs(inputs, lambda commands: _run_to_end(commands, folder / "inputs.log"))
    return inputs


def places_of(folder: Path, inputs: Path, subject: str) -> Places:
    """Return the folders of a subject's trials, always the same: results may name them."""
    return Places(inputs=inputs, out=folder / "work" / _slug(subject))


def read_trials(log: Path) -> list[Trial]:
    """Return the trials in a log; a line that a kill has cut short is left out."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [Trial(**json.loads(line)) for line in lines if line.endswith("}")]


def undisturbed_result(folder: Path, subject: str, places: Places) -> Undisturbed:
    """Return the undisturbed result of a subject, measured once and kept in the folder."""
    file = folder / "undisturbed" / f"{_slug(subject)}.json"
    if file.exists():
        return Undisturbed(**json.loads(file.read_text()))
    result = run_undisturbed(subject, places)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(asdict(result), indent=1))
    print(f"{subject}: {result.duration_s:.1f} s undisturbed", file=sys.stderr, flush=True)
    return result


def _report(trial: Trial, folder: Path, places: Places) -> None:
    """Print a trial, and keep its files if it was not survived."""
    words = "survived" if trial.survived else f"NOT SURVIVED: {trial.problem}"
    note = " (too late)" * (not trial.in_time) + " (traceback)" * trial.traceback
    print(
        f"{trial.number:4d}  {trial.subject}  {trial.kind} at {trial.share:.2f}  "
        f"{trial.statuses}  {trial.wall_s:.1f} s  {words}{note}",
        file=sys.stderr,
        flush=True,
    )
    if not trial.survived or trial.traceback:
        keep_logs(folder / "failed" / str(trial.number), places, failed=not trial.survived)
    shutil.rmtree(places.out, ignore_errors=True)


def keep_logs(kept: Path, places: Places, *, failed: bool) -> None:
    """Copy what the commands of a trial have printed, and their files if the trial failed."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for log in places.out.parent.glob(f"{places.out.name}*.log"):
        shutil.copy(log, kept)
    if failed:
        shutil.copytree(places.out, kept / "out", symlinks=True)


def _run_to_end(commands: Commands, log: Path) -> None:
    """Run commands that nothing disturbs; RuntimeError if one fails."""
    with running(commands, log) as run:
        run.wait(600)
    if any(run.results()):
        raise RuntimeError(f"{commands[0]} fails: {run.results()}, see {log}")


def _slug(subject: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in subject.lower())
