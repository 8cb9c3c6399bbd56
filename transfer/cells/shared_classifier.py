"""The classifier that one task trains and others use: find it, train it, or wait for it.

The record of the cell that trained it names the weights. They belong to the same backbone, data,
protocol, seed and arithmetic as the record.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pretrain.running import stop
from pretrain.running.lock import BusyError, lock_folder
from transfer.record import Record
from transfer.running.console import print_line

WAIT_S = 5.0
"""Time between looks at a classifier that another process trains."""
WEIGHTS = "weights"
"""Key of the name of the stored weights in a record's details."""


class ClassifierError(RuntimeError):
    """Error for a shared classifier that cannot be trained; the cell that uses it did not fail."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(f"classifier {key} failed: {reason}")
        self.reason = str(reason)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """The cell that trains the classifier, reduced to what this module needs."""

    key: str
    path: Path
    """Path of the cell's record."""
    work: Path
    finished: Callable[[], Record | None]
    """Function that returns the cell's record, whether or not the weights exist."""
    train: Callable[[], object]
    """Function that trains the classifier, and writes weights and record."""
    note_failure: Callable[[Exception], None]


def weights_file(record: Record | None, work: Path) -> Path | None:
    """Return the file of the weights that a record names; None if it is absent or holds others."""
    from transfer.frozen.classifier import classifier_file, load_classifier

    name = record.details.get(WEIGHTS) if record is not None else None
    if name is None:
        return None
    file = classifier_file(work, name)
    return file if load_classifier(file) is not None else None


def obtain_classifier(user: str, trainer: Trainer) -> Record:
    """Return the record of the classifier for the task `user`; its weights exist.

    If they do not, train it, or wait while another process does; log each of these steps.
    ClassifierError if it cannot be trained.
    """
    waiting = False
    while True:
        record = _usable_record(trainer)
        if record is not None:
            print_line("classifier", f"{user} uses that of {trainer.key}: {trainer.path}")
            return record
        try:
            with lock_folder(trainer.work):
                # another process may have trained it before this one got the lock
                if _usable_record(trainer) is None:
                    why = why_missing(trainer)
                    told = f"{user} needs that of {trainer.key}, but {why}: training it first"
                    print_line("classifier", told)
                    _train(trainer)
                    if _usable_record(trainer) is None:
                        raise ClassifierError(
                            trainer.key, f"its training has left no weights below {trainer.work}"
                        )
        except BusyError as error:
            if not waiting:
                print_line("classifier", f"{user} waits for that of {trainer.key}: {error}")
            waiting = True
            stop.exit_if_requested()
            time.sleep(WAIT_S)


def why_missing(trainer: Trainer) -> str:
    """Return a clause for log lines on why a classifier cannot be used."""
    from transfer.frozen.classifier import any_classifier

    if trainer.finished() is None:
        there = trainer.path.exists()
        return "its record belongs to another training" if there else "it has no record"
    there = any_classifier(trainer.work)
    return "what lies there belongs to another training" if there else "its weights are gone"


def _usable_record(trainer: Trainer) -> Record | None:
    record = trainer.finished()
    return record if weights_file(record, trainer.work) else None


def _train(trainer: Trainer) -> None:
    try:
        trainer.train()
    except Exception as error:  # whatever it is, the tables must not blame the cell that uses it
        trainer.note_failure(error)
        raise ClassifierError(trainer.key, error) from error
