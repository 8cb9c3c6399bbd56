"""The classifier that a task uses and another has trained: found, trained now, or waited for.

It is found by the record of the cell that trained it, which names the weights: they fit the same
backbone, data, protocol, seed and arithmetic as the record does.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transfer.frozen.classifier import any_classifier, classifier_file, load_classifier
from transfer.record import Record
from transfer.running import stop
from transfer.running.console import say
from transfer.running.lock import BusyError, alone

WAIT_S = 5.0
"""Between looks at a classifier that another process trains."""
WEIGHTS = "weights"
"""What a record's details call the weights that its task has kept."""


class ClassifierError(RuntimeError):
    """The classifier that a cell uses cannot be trained: no fault of the cell itself."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(f"classifier {key} failed: {reason}")
        self.reason = str(reason)


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """The cell that trains the classifier, as much of it as is looked at here."""

    key: str
    path: Path
    """Of its record."""
    work: Path
    finished: Callable[[], Record | None]
    """Its record, whether or not the weights are there."""
    train: Callable[[], object]
    """Leaves weights and record."""
    note_failure: Callable[[Exception], None]


def kept(record: Record | None, work: Path) -> Path | None:
    """The file of the weights that a record names; None if it is not there, or not these."""
    name = record.details.get(WEIGHTS) if record is not None else None
    if name is None:
        return None
    file = classifier_file(work, name)
    return file if load_classifier(file) is not None else None


def borrowed(user: str, trainer: Trainer) -> Record:
    """The record of the classifier for the task `user`, whose weights are there; all is said.

    ClassifierError if it cannot be trained.
    """
    waiting = False
    while True:
        record = _found(trainer)
        if record is not None:
            say("classifier", f"{user} uses that of {trainer.key}: {trainer.path}")
            return record
        try:
            with alone(trainer.work):
                if _found(trainer) is None:  # nobody has trained it since
                    why = why_missing(trainer)
                    told = f"{user} needs that of {trainer.key}, but {why}: training it first"
                    say("classifier", told)
                    _train(trainer)
                    if _found(trainer) is None:
                        raise ClassifierError(trainer.key, "its training has left no weights")
        except BusyError as error:
            if not waiting:
                say("classifier", f"{user} waits for that of {trainer.key}: {error}")
            waiting = True
            stop.leave_if_asked()
            time.sleep(WAIT_S)


def why_missing(trainer: Trainer) -> str:
    """Half a sentence on a classifier that is not there."""
    if trainer.finished() is None:
        there = trainer.path.exists()
        return "its record belongs to another training" if there else "it has no record"
    there = any_classifier(trainer.work)
    return "what lies there belongs to another training" if there else "its weights are gone"


def _found(trainer: Trainer) -> Record | None:
    record = trainer.finished()
    return record if kept(record, trainer.work) else None


def _train(trainer: Trainer) -> None:
    try:
        trainer.train()
    except Exception as error:  # whatever it is, the tables must not blame the cell that asked
        trainer.note_failure(error)
        raise ClassifierError(trainer.key, error) from error
