"""The classifier that one task trains and others use: find it, train it, or wait for it.

The record of the cell that trained it names the weights. They belong to the same backbone, data,
protocol, seed and arithmetic as the record.
"""

from collections.abc import Callable
from dataclasses import replace

from pretrain.running.console import print_line
from pretrain.running.lock import wait_for_lock
from transfer.cells.request import Cell, finished
from transfer.record import Record


class ClassifierError(RuntimeError):
    """Error for a shared classifier that cannot be trained; the cell that uses it did not fail."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(f"classifier {key} failed: {reason}")
        self.reason = str(reason)


def obtain_classifier(user: str, needed: Cell, train: Callable[[Cell], object]) -> Record:
    """Return the record of the cell that the task `user` needs; the weights that it names exist.

    If they do not, train them, or wait while another process does; log each of these steps.
    ClassifierError if there are none then.
    """
    record, work = finished(needed), needed.folders.work
    waits = f"{user} waits for that of {needed.key}: {work}: another process works on this cell"
    if record is None:
        with wait_for_lock(work / "lock", "--runs", lambda: print_line("classifier", waits)):
            # another process may have trained it before this one got the lock
            record = finished(needed)
            if record is None:
                why = without_classifier(needed)
                told = f"{user} needs that of {needed.key}, but {why}: training it first"
                print_line("classifier", told)
                train(needed)
                record = finished(needed)
    if record is None:
        raise ClassifierError(needed.key, f"its training has left no weights below {work}")
    print_line("classifier", f"{user} uses that of {needed.key}: {needed.path}")
    return record


def without_classifier(needed: Cell) -> str:
    """Return why the classifier that the cell trains cannot be used yet; empty if it can."""
    from transfer.frozen.classifier import any_classifier

    if finished(needed) is not None:
        return ""
    if finished(replace(needed, with_weights=False)) is None:
        there = needed.path.exists()
        return "its record belongs to another training" if there else "it has no record"
    there = any_classifier(needed.folders.work)
    return "what lies there belongs to another training" if there else "its weights are gone"
