"""The command line that evaluates one checkpoint on one task."""

import sys
from dataclasses import dataclass, replace
from typing import Annotated

import tyro

from pretrain.running.processes import this_process
from pretrain.running.ranges import check_ranges
from transfer.cells.cell import Cell, check_records_of_name, deviations, finished
from transfer.cells.declaration import check_declared_recipe, settle_declaration
from transfer.cells.request import Request, check_options_are_used
from transfer.datasets.expected import DataError
from transfer.datasets.folders import check_row_name, check_writable
from transfer.detection.engines import engine_for
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import default_name
from transfer.encoders.file_types import check_is_checkpoint
from transfer.finetuning.options import length_fraction
from transfer.tasks import task_of


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate one checkpoint on one task."""

    request: Annotated[Request, tyro.conf.arg(name="")]
    """Task, checkpoint and options."""
    dry_run: bool = False
    """Print what would be done, and exit."""

    def __call__(self) -> int:
        """Evaluate the checkpoint and print the result; return the exit status."""
        from transfer.cells.job import evaluate_on_gpus, summary

        key, settings = self.request.task, self.request.settings
        check_options_are_used(settings, [task_of(key)])
        cell = Cell.of(self.request)
        if this_process().is_main:
            print(f"backbone  {cell.backbone.source}", file=sys.stderr)
        if this_process().num_processes > 1 and cell.task.distributed_training is None:
            raise ValueError(f"{key} runs in one process; start it without torchrun")
        if reason := cell.task.unsupported_reason(cell.backbone):
            raise BackboneError(f"{key}: {reason}")
        if reason := cell.task.too_few_images(settings.data):
            raise DataError(f"{key}: {reason}")
        if finished(cell) is None:
            check_records_of_name([cell])
        if self.dry_run:
            print(f"{cell.task}\nrecord: {cell.path}")
            for line in deviations(cell):
                print(f"deviates from the paper: {line}")
            return 0
        if this_process().is_main:
            is_explicit = self.request.checkpoint.declared is not None
            backbone, note = settle_declaration(
                cell.records, cell.backbone, is_explicit=is_explicit
            )
            cell = cell.declared_as(backbone, is_explicit=is_explicit)
            if note:
                print(note, file=sys.stderr)
        record = evaluate_on_gpus(cell)
        if this_process().is_main:
            print(summary(cell, record))
        return 0

    def checked(self) -> "Evaluate":
        """Return the command with hub addresses replaced by paths in the cache.

        Raises an error for a misspelled name or an unusable path, before torch is imported.
        """
        check_ranges(self)
        settings = self.request.settings
        task_of(self.request.task)
        length_fraction(settings.schedule)
        if self.request.checkpoint.declared:
            check_declared_recipe(self.request.checkpoint.declared)
        engine_for(settings.training.engine)
        check_writable(settings.results, "--results")
        check_writable(settings.runs, "--runs")
        checkpoint = self.request.checkpoint.local()
        default = default_name(checkpoint.ckpt)
        check_row_name(default if checkpoint.name is None else checkpoint.name, default)
        check_is_checkpoint(checkpoint.ckpt)
        return replace(self, request=replace(self.request, checkpoint=checkpoint))
