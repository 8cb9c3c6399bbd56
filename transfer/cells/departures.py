"""The deviations of a cell from the paper's protocol, as sentences."""

from dataclasses import is_dataclass

from transfer.cells.request import Cell
from transfer.datasets.catalog import DATASETS
from transfer.record import Record, features_in, hashed_fields
from transfer.tasks import task_of


def departures(cell: Cell) -> list[str]:
    """Return a sentence per deviation of the cell, its classifier and its data from the paper."""
    found = _differences(task_of(cell.key), cell.task)
    if cell.needed is not None:
        own = _differences(task_of(cell.needed.key), cell.needed.task)
        found += [f"classifier: {line}" for line in own]
    if cell.computing.precision != "float32" and not cell.task.trains_backbone:
        found.append(f"frozen features in {cell.computing.precision}, batch norms folded")
    for key in cell.task.datasets():
        found += DATASETS[key].departures(cell.settings.data)
    return found


def _differences(paper: object, used: object) -> list[str]:
    """Return a sentence per field that differs; a nested dataclass, such as a recipe, gets one."""
    found = []
    for spec in hashed_fields(paper):
        before, after = getattr(paper, spec.name), getattr(used, spec.name)
        if is_dataclass(before) and before != after:
            found.append(f"{spec.name}: {', '.join(_differences(before, after))}")
        elif before != after:
            found.append(f"{spec.name} {_brief(after)} instead of {_brief(before)}")
    return found


def _brief(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 4:
        return f"{len(value)} values from {min(value):.3g} to {max(value):.3g}"
    return str(value)


def classifier_departures(cell: Cell, lender: Record | None) -> list[str]:
    """Return a departure if the classifier was trained on features in another arithmetic."""
    if lender is None or features_in(lender) == cell.computing.precision:
        return []
    return [f"classifier: trained on features in {features_in(lender)}"]
