"""The decision whether a cell is finished, or its record is stale.

A record is stale if protocol, weights of the backbone, data or, where requested, engine and
arithmetic differ from those of the cell.
"""

from transfer.cells.checked_data import fingerprint
from transfer.cells.request import Cell
from transfer.cells.shared_classifier import weights_file
from transfer.record import Record, features_in, protocol_hash, readable_records
from transfer.tasks import reading_of


def finished(cell: Cell) -> Record | None:
    """Return a record of the same protocol, weights and data, None if there is none.

    Among several, a record of the arithmetic and engine that the cell would use now is preferred.
    """
    found = [record for record in readable_records(cell.path).values() if _fits(cell, record)]
    return max(found, key=lambda record: _matches_current_settings(cell, record), default=None)


def _fits(cell: Cell, record: Record) -> bool:
    """Return whether a record is up to date, in the requested engine and arithmetic, if any."""
    return (
        record.protocol["hash"] == protocol_hash(reading_of(cell.key)[0], cell.task)
        and record.backbone["sha256"] == cell.backbone.sha256
        and cell.task.accepts_engine(record.engine)
        and _same_arithmetic(cell, record)
        and record.details.get("classifier", "") == classifier_hash(cell)
        and all(
            record.data.get(key, {}).get("fingerprint")
            == fingerprint(key, cell.settings.data, cell.folders.cache)
            for key in cell.task.datasets()
        )
        and not (cell.with_weights and weights_file(record, cell.folders.work) is None)
    )


def _matches_current_settings(cell: Cell, record: Record) -> tuple[bool, bool]:
    """Return whether the engine, and whether the arithmetic, is what the cell would use now."""
    same_arithmetic = features_in(record) == cell.computing.precision
    return record.engine == cell.task.engine, same_arithmetic


def _same_arithmetic(cell: Cell, record: Record) -> bool:
    """Return whether the arithmetic is acceptable: any, unless one was requested."""
    asked = cell.settings.features_in
    return asked in ("auto", features_in(record)) or cell.task.trains_backbone


def classifier_hash(cell: Cell) -> str:
    """Return the hash of the protocol that trains the cell's classifier; empty if it uses none."""
    needed = cell.needed
    return "" if needed is None else protocol_hash(reading_of(needed.key)[0], needed.task)
