"""Python API: evaluate an encoder on a task, like the command line.

It uses the same cells, checks and protocols as `python -m transfer`. Records are written only if a
folder is given. Between two calls, only the cache in `runs` is kept.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pretrain.running.console import format_duration
from transfer.argument_names import argument_names
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate as evaluate_cell
from transfer.cells.request import Settings
from transfer.datasets.folders import check_row_name, data_folder
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, Precision
from transfer.fact_tables import table_html, table_text
from transfer.finetuning.options import length_fraction
from transfer.frozen.feature_cache import RequestedPrecision
from transfer.process_state import torch_defaults
from transfer.record import Record
from transfer.tasks import NamedTask, TaskError, get


@dataclass(frozen=True)
class Result:
    """The result of an evaluation, with everything that its record stores."""

    record: Record

    def __repr__(self) -> str:
        """Return metrics, protocol, deviations and data, one per line."""
        return table_text(*self._title_and_facts())

    def _repr_html_(self) -> str:
        """Return the values of `__repr__` as an HTML table, for notebooks."""
        return table_html(*self._title_and_facts())

    def _title_and_facts(self) -> tuple[str, dict[str, object]]:
        record, protocol = self.record, self.record.protocol["name"]
        return f"Result of {record.backbone['name']} on {record.task}", {
            "metrics": {name: f"{value:.2f} %" for name, value in record.metrics.items()},
            "protocol": f"{protocol}, schedule {record.schedule}, seed {record.seed}",
            "deviations": "; ".join(record.departures),
            "data": {
                key: f"({', '.join(filter(None, [dataset['small'], dataset['fingerprint']]))})"
                for key, dataset in record.data.items()
            },
            "backbone": record.backbone["source"],
            "engine": record.engine,
            "time": format_duration(record.wall_s),
            "details": ", ".join(record.details),
        }

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics in percent, by their names in the paper tables."""
        return self.record.metrics

    @property
    def details(self) -> dict[str, Any]:
        """Selected learning rates and costs, results per class."""
        return self.record.details

    @property
    def protocol(self) -> dict[str, Any]:
        """Name, hash and fields of the protocol, and the paper's hash."""
        return self.record.protocol


@argument_names()
@torch_defaults()
def evaluate(
    encoder: Encoder,
    task: str | NamedTask,
    *,
    data: Path | str | None = None,
    schedule: str = "paper",
    seed: int = 0,
    results: Path | str | None = None,
    runs: Path | str = "runs",
    features_in: RequestedPrecision = "auto",
    tolerate: int = 0,
) -> Result:
    """Evaluate an encoder on a task.

    The result does not depend on the state of the process: autocast, gradients, default dtype and
    device, or a process group. It is computed by this process alone, on its current device. Several
    ranks may call it; if they share `runs`, one waits for the other.

    Args:
        encoder: The encoder, as `load_backbone`, `Encoder.from_file` or `Encoder.from_module`
            returns it.
        task: A key, such as "cifar10_knn", or a task of `tasks.get`.
        data: Folder of all datasets. Default: $DATASETS, or ./datasets.
        schedule: paper, short, smoke, or a fraction of the paper's length.
        seed: Seed of initial weights and random crops.
        results: Folder for the record, as on the command line; a finished record in it is
            returned. None writes no record.
        runs: Folder of the cache and of unfinished work.
        features_in: Precision of frozen features.
        tolerate: Maximum number of bad images and annotations per dataset.

    Returns:
        The result, with metrics, details and protocol.

    Raises:
        TaskError: The encoder does not support the task, or the task does not exist.
        DataError: The data are missing or broken; the message says how to get them.
        BackboneError: `encoder` is not an `Encoder`.
        ArgumentError: Another argument is invalid.
    """
    if not isinstance(encoder, Encoder):
        raise BackboneError(
            f"evaluate takes an Encoder, not {encoder!r:.200}. For a file, write "
            f"load_backbone(path), or Encoder.from_file(path, encoder='timm:...') if it is not a "
            f"ResNet. For a network, write Encoder.from_module(network, size_px=224, mean=(0.485, "
            f"0.456, 0.406), std=(0.229, 0.224, 0.225)), with the images that it was trained on"
        )
    match task:
        case str():
            named_task = get(task)
        case _:
            named_task = task
    length_fraction(schedule)
    check_row_name(encoder.name, encoder.name)
    if features_in not in (choices := ("auto", *get_args(Precision))):
        raise ValueError(f"features_in {features_in!r}: expected {', '.join(choices)}")
    if reason := named_task.task.unsupported_reason(encoder):
        raise TaskError(f"{named_task.key}: {reason}")
    folder = (Path(data) if data is not None else data_folder()).absolute()
    with tempfile.TemporaryDirectory() if results is None else nullcontext(results) as parent:
        settings = Settings(
            data=folder,
            results=Path(parent),
            runs=Path(runs),
            schedule=schedule,
            tolerate=tolerate,
            features_in=features_in,
        )
        cell = Cell.with_backbone(
            backbone=encoder,
            task=named_task.key,
            seed=seed,
            settings=settings,
            variant=named_task.variant,
            changes=named_task.changes,
        )
        return Result(evaluate_cell(cell, checks_again=True))
