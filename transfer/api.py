"""The Python API: evaluate an encoder on a task, as the command line does.

Results are records only where a folder is given. The same cells, checks and protocols are used as
by `python -m transfer`; nothing is kept between two calls but the cache below `runs`.
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
        """Return a line per fact: metrics, protocol, deviations, data."""
        return table_text(self._title(), self._facts())

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        return table_html(self._title(), self._facts())

    def _title(self) -> str:
        return f"Result of {self.record.backbone['name']} on {self.record.task}"

    def _facts(self) -> dict[str, object]:
        record, protocol = self.record, self.record.protocol["name"]
        data = {
            key: f"({', '.join(filter(None, [told['small'], told['fingerprint']]))})"
            for key, told in record.data.items()
        }
        return {
            "metrics": {name: f"{value:.2f} %" for name, value in record.metrics.items()},
            "protocol": f"{protocol}, schedule {record.schedule}, seed {record.seed}",
            "deviations": "; ".join(record.departures),
            "data": data,
            "backbone": record.backbone["source"],
            "engine": record.engine,
            "time": format_duration(record.wall_s),
            "details": ", ".join(record.details),
        }

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics in percent, by the names of the papers' tables."""
        return self.record.metrics

    @property
    def details(self) -> dict[str, Any]:
        """Chosen learning rates and costs, results per class."""
        return self.record.details

    @property
    def protocol(self) -> dict[str, Any]:
        """Name, hash and numbers of the protocol, and the hash of the paper's."""
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
    """Evaluate an encoder on a task and return what the record holds.

    task: a key, or a task of `tasks.get`. data: folder of all data sets; $DATASETS or ./datasets if
    None. schedule: paper, short, smoke, or a share of the paper's length. results: folder that
    keeps the record, as of the command line, and in which a finished one is found again; None keeps
    nothing. runs: folder of the cache and of unfinished work. TaskError for a task that the encoder
    cannot do, DataError for data that are absent or broken, BackboneError for an object that is not
    an `Encoder`.

    The result does not depend on the state of the process: autocast, gradients, default dtype and
    device, a process group. It is computed by this process alone, on its current device. Several
    ranks may call it: where they share `runs`, one waits for the other.
    """
    require_encoder(encoder)
    asked = task
    named = get(asked) if isinstance(asked, str) else asked
    length_fraction(schedule)
    check_row_name(encoder.name, encoder.name)
    if features_in not in (known := ("auto", *get_args(Precision))):
        raise ValueError(f"features_in {features_in!r}: expected {', '.join(known)}")
    if why := named.task.unsupported_reason(encoder):
        raise TaskError(f"{named.key}: {why}")
    folder = Path(data) if data is not None else data_folder()
    with tempfile.TemporaryDirectory() if results is None else nullcontext(results) as kept:
        settings = Settings(
            data=folder,
            results=Path(kept),
            runs=Path(runs),
            schedule=schedule,
            tolerate=tolerate,
            features_in=features_in,
        )
        cell = Cell.with_backbone(
            backbone=encoder,
            task=named.key,
            seed=seed,
            settings=settings,
            variant=named.variant,
            changes=named.changes,
        )
        return Result(evaluate_cell(cell, wait=True))


def require_encoder(encoder: object) -> None:
    """Raise a BackboneError, with the line to write, for a bare network or a path."""
    if isinstance(encoder, Encoder):
        return
    if isinstance(encoder, str | Path):
        found, line = f"the path {str(encoder)!r}", f"load_backbone({str(encoder)!r})"
        line += ", or Encoder.from_file(..., encoder='timm:...') if it is not a ResNet"
    else:
        found = f"an object of {type(encoder).__module__}.{type(encoder).__qualname__}"
        line = "Encoder.from_module(network, size_px=224, mean=(0.485, 0.456, 0.406), "
        line += "std=(0.229, 0.224, 0.225)), with the images that the network was trained on"
    raise BackboneError(f"evaluate takes an Encoder, not {found}. Write {line}")
