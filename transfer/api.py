"""Python API: evaluate an encoder on a task, like the command line.

It uses the same cells, checks and protocols as `python -m transfer`. Records are written only if a
folder is given. Between two calls, only the cache in `runs` is kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pretrain.running.console import format_duration
from pretrain.running.errors import ArgumentError, SuiteError
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate as evaluate_cell
from transfer.cells.request import Settings
from transfer.datasets.folders import check_row_name, data_folder
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, Precision
from transfer.fact_tables import table_text
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
        record, protocol = self.record, self.record.protocol["name"]
        fields: dict[str, object] = {
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
        return table_text(f"Result of {record.backbone['name']} on {record.task}", fields)

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


@contextmanager
def _only_suite_errors() -> Iterator[None]:
    """Raise each ValueError of the decorated function as a SuiteError."""
    try:
        yield
    except SuiteError:
        raise
    except ValueError as error:
        raise ArgumentError(str(error)) from error


@_only_suite_errors()
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
    named_task = get(task) if isinstance(task, str) else task
    length_fraction(schedule)
    check_row_name(encoder.name, encoder.name)
    if features_in not in (choices := ("auto", *get_args(Precision))):
        raise ValueError(f"features_in {features_in!r}: expected {', '.join(choices)}")
    if reason := named_task.task.unsupported_reason(encoder):
        raise TaskError(f"{named_task.key}: {reason}")
    folder = Path(data) if data is not None else data_folder()
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
        return Result(evaluate_cell(cell))
