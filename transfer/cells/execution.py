"""Run a cell, from data to record."""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pretrain.running.command_line import changed_fields
from pretrain.running.console import print_line, progress_callback
from pretrain.running.host_memory import image_memory
from pretrain.running.lock import wait_for_lock
from pretrain.running.processes import Process, tf32_convolutions, this_process, wait_for_all
from transfer.cells import state
from transfer.cells.cell import (
    WEIGHTS,
    Cell,
    check_records_of_name,
    classifier_error,
    classifier_hash,
    deviations,
    finished,
    weights_file,
)
from transfer.cells.checked_data import (
    check_once,
    check_unchanged,
    checked_folders,
    fingerprint,
)
from transfer.cells.request import Settings, to_json
from transfer.datasets.catalog import DATASETS, load_annotations, open_split
from transfer.datasets.check import Report
from transfer.datasets.images import ChangedDataError
from transfer.datasets.splits import write_list
from transfer.encoders.encoder import Encoder
from transfer.encoders.hub import address_of
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.feature_cache import features_of_backbones
from transfer.frozen.rankme import rankme_details
from transfer.galleries.tile import update_gallery
from transfer.record import (
    COPIED,
    Record,
    cell_records,
    features_in,
    protocol_hash,
    read_record,
    record_files,
    run_environment,
    store_record,
    stored_fields,
)
from transfer.tasks import reading_of, task_of

if TYPE_CHECKING:
    from transfer.frozen.linear_heads import Pass


@contextmanager
def explain_errors(cell: Cell) -> Iterator[None]:
    """Shorten out-of-memory errors of GPU or CPU, and add advice.

    After a change of the data, the next cell of this process checks them again.
    """
    from pretrain.running.torch_versions import is_out_of_memory

    try:
        yield
    except ChangedDataError:
        check_once.cache_clear()
        raise
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            reason = str(error).partition("\n")[0].rstrip(".") or "out of memory"
            options = cell.task.supported_options
            if cell.feature_backbone.precision == "bfloat16":
                options -= {"features_in"}
            if advice := [LESS_MEMORY[name] for name in LESS_MEMORY if name in options]:
                reason += f". To use less memory, pass {', or '.join(advice)}"
            error.args = (reason,)
        raise


LESS_MEMORY = {
    "images_per_gpu": "a smaller --images-per-gpu",
    "batch_size": "a smaller --batch-size",
    "precision": "--precision bfloat16",
    "features_in": "--feature-precision bfloat16",
}
"""Options that reduce memory, for the tasks that support them."""


def evaluate(cell: Cell, *, checks_again: bool = False) -> Record:
    """Run the cell and write its record; only read a finished cell.

    If another process runs the cell, wait for it. Raises ValueError if records of other weights
    have the backbone's name. No record is written if an error occurs.

    checks_again: check data that have changed since this process checked them, instead of raising
    ChangedDataError.
    """
    fingerprint.cache_clear()  # the data may have changed since the plan, or the cell before
    load_annotations(cell.task.datasets(), cell.folders.data, cell.folders.cache)
    record, process = finished(cell), this_process()
    if record is not None:
        if process.is_main:
            state.note_finished(cell)
        return record
    check_records_of_name([cell])
    if process.is_main:
        for line in cell_records(cell.path)[1]:
            print_line("record", line)
        with lock_cell(cell), state.reporting(cell):
            # another process may have evaluated it in the meantime
            if process.num_processes == 1 and (record := finished(cell)) is not None:
                return record
            check_records_of_name([cell])
            file = _compute(cell, process, checks_again)
    else:
        file = _compute(cell, process, checks_again)
    wait_for_all("that write the record")
    newest = max(record_files(cell.path), key=lambda path: path.stat().st_mtime_ns)
    return read_record(file or newest)


def lock_cell(cell: Cell) -> AbstractContextManager[None]:
    """Lock a cell's working folder; wait while another process evaluates the cell."""
    folder = cell.folders.work
    note = f"{folder}: another process works on {cell.key}"
    return wait_for_lock(folder / "lock", "--runs", lambda: print_line("waiting", note))


def _compute(cell: Cell, process: Process, checks_again: bool) -> Path | None:
    """Compute predictions in all processes; return the record file.

    Only the main process writes and returns it.
    """
    import torch

    start_s = time.monotonic() - cell.shared_s
    reports, folders = checked_folders(
        cell.task.datasets(), cell.folders, cell.settings.tolerate, checks_again=checks_again
    )
    classifier_cell, classifier_record = cell.classifier_cell, None
    if classifier_cell is not None:
        print_line("classifier", f"{cell.key} uses {classifier_cell.key}: {classifier_cell.path}")
        try:
            # trains it, unless its weights exist
            classifier_record = evaluate(classifier_cell, checks_again=checks_again)
        except Exception as error:  # the tables must not blame the cell that uses it
            raise classifier_error(classifier_cell, error) from error
        weights = weights_file(classifier_record, classifier_cell.folders.work)
        folders = replace(folders, classifier=weights)
        # the classifier's training has another record
        start_s = time.monotonic() - cell.shared_s
    if process.device.type == "cuda" and not cell.shared_s:  # the peak includes shared work
        torch.cuda.reset_peak_memory_stats(process.device)
    with explain_errors(cell):
        prepared = cell.task.prepare(cell.feature_backbone, folders)
        with image_memory(cell.settings.image_memory_gb):
            predictions = cell.task.run(prepared, folders, cell.seed)
        if not process.is_main:
            return None
        record = _record(cell, predictions, reports, classifier_record, start_s)
        if cell.request.checkpoint.origin.file:
            task, backbone = cell.task, cell.feature_backbone
            rank = rankme_details(task.dataset, task.extracted(), backbone, folders)
            record = replace(record, details=record.details | rank)
        check_unchanged(reports, cell.settings.data)
        file = store_record(cell.path, record)
        draw = partial(cell.task.gallery, predictions, folders)
        update_gallery(file, draw, finished=record.finished)
    return file


def _record(
    cell: Cell,
    predictions: Any,
    reports: dict[str, Report],
    classifier_record: Record | None,
    start_s: float,
) -> Record:
    from transfer.finetuning.state import peak_memory_gb

    task_id = reading_of(cell.key)[0]
    return Record(
        backbone=_backbone_fields(cell.backbone),
        task=task_id,
        protocol={
            "name": cell.task.protocol,
            "hash": protocol_hash(task_id, cell.task),
            "paper_hash": protocol_hash(task_id, task_of(cell.key)),
            "fields": json.loads(json.dumps(stored_fields(cell.task))),
        },
        schedule=cell.settings.schedule,
        seed=cell.seed,
        engine=cell.task.engine,
        metrics=cell.task.metrics(predictions),
        details=json.loads(
            json.dumps(
                # a head that convolves states TF32 itself
                _run_details(cell, reports, classifier_record) | cell.task.details(predictions)
            )
        ),
        data={
            key: {
                "fingerprint": report.fingerprint,
                "small": report.small,
                "counts": {split: count for split, (count, _) in report.counts.items()},
                "tolerated": report.num_bad,
            }
            for key, report in reports.items()
        },
        departures=deviations(cell, classifier_record),
        wall_s=round(time.monotonic() - start_s, 1),
        peak_memory_gb=round(peak_memory_gb(), 2),
        request=stored_request(cell, classifier_record),
        primary_metric=cell.task.primary_metric,
        heading=cell.task.heading,
        declared=cell.backbone.declared,
        **run_environment(),
    )


def _run_details(
    cell: Cell, reports: Mapping[str, Report], classifier_record: Record | None
) -> dict[str, object]:
    """Return details of the run.

    These are precision of features, copied images, drawn splits and the classifier used.
    """
    details: dict[str, object] = {}
    if not cell.task.trains_backbone:
        details["features_in"] = cell.feature_backbone.precision
        in_float32 = cell.feature_backbone.precision == "float32"
        details["tf32_convolutions"] = in_float32 and tf32_convolutions()
    if copied := {key: r.copied_percent for key, r in reports.items() if r.copied_percent}:
        details[COPIED] = copied
    for key in cell.task.datasets():
        if draw := DATASETS[key].draw:
            splits = {
                name: open_split(key, cell.settings.data, name) for name in ("trainval", "test")
            }
            details[f"list_of_{key}"] = write_list(cell.folders.lists, f"{key}-{draw}", splits)
    if classifier_record is not None:
        details["classifier"] = classifier_hash(cell)
        details["classifier_weights"] = classifier_record.details[WEIGHTS]
        details["classifier_features_in"] = features_in(classifier_record)
    return details


def extract_together(cells: Sequence[Cell]) -> None:
    """Extract features for several backbones, decoding each image once for all.

    The cells' states show the progress. An error is only printed: each cell then extracts missing
    features itself and reports its own error.
    """

    def report(progress: str) -> None:
        for cell in cells:
            state.write(cell, "running", progress)

    groups: dict[object, dict[str, Cell]] = {}
    for cell in cells:  # the tasks may differ: they contain the backbone's normalization
        read = (cell.key, *cell.task.extracted())
        groups.setdefault(read, {})[cell.backbone.sha256] = cell
    for by_weights in groups.values():
        backbones = [cell.feature_backbone for cell in by_weights.values()]
        first_cell = next(iter(by_weights.values()))
        task, keys = first_cell.task, first_cell.task.datasets()
        for split, transform in task.extracted():
            try:
                load_annotations(keys, first_cell.folders.data, first_cell.folders.cache)
                tolerated = first_cell.settings.tolerate
                _, folders = checked_folders(keys, first_cell.folders, tolerated)
                with explain_errors(first_cell), progress_callback(report):
                    task.extracted_images(folders)
                    features_of_backbones(backbones, task.dataset, split, transform, folders)
            except Exception as error:
                line = f"joint extraction of {split} failed: {error}; each cell extracts separately"
                print(f"{first_cell.key}  {line}", file=sys.stderr, flush=True)
    for cell in cells:
        state.write(cell, "queued")


def train_probes_together(cells: Sequence[Cell]) -> None:
    """Train the probes of several backbones on one stream of random crops.

    Each crop is made once for all. The states of the trainings are stored, so each cell then finds
    its own finished. An error is only printed: the cell then trains itself and reports its own
    error.
    """
    groups: dict[object, dict[str, Cell]] = {}
    for cell in cells:
        if (crops := cell.task.shared_pass) is not None:
            # the tasks may differ: they contain the backbone's normalization
            groups.setdefault((cell.key, crops, cell.seed), {})[cell.backbone.sha256] = cell
    for by_weights in groups.values():
        if len(by_weights) > 1:
            _train_probes(list(by_weights.values()))
    for cell in cells:
        state.write(cell, "queued")


def _train_probes(cells: Sequence[Cell]) -> None:
    """Train the probes of a task for one cell of each backbone."""
    from transfer.frozen.linear_heads import train_passes

    def report(progress: str) -> None:
        for cell in cells:
            state.write(cell, "running", progress)

    def note(cell: Cell, error: Exception) -> None:
        line = f"joint training failed: {error}; this cell trains separately"
        print(f"{cell.backbone.name} {cell.key}  {line}", file=sys.stderr, flush=True)

    def prepared_passes(cell: Cell) -> Iterator["Pass"]:
        keys, folders = cell.task.datasets(), cell.folders
        load_annotations(keys, folders.data, folders.cache)
        _, folders = checked_folders(keys, folders, cell.settings.tolerate)
        prepared = cell.task.prepare(cell.feature_backbone, folders)
        yield from cell.task.passes(prepared, folders, cell.seed)

    trainings = [(cell, prepared_passes(cell)) for cell in cells]
    with progress_callback(report), image_memory(cells[0].settings.image_memory_gb):
        while trainings:
            current: dict[Pass, tuple[Cell, Iterator[Pass]]] = {}
            for cell, passes in trainings:
                try:
                    with explain_errors(cell):
                        current |= dict.fromkeys(islice(passes, 1), (cell, passes))
                except Exception as error:
                    note(cell, error)
            try:
                with explain_errors(cells[0]):
                    failed = train_passes(list(current))
            except Exception as error:
                note(cells[0], error)
                return
            for each, reason in failed.items():
                note(current.pop(each)[0], reason)
            trainings = list(current.values())


def stored_request(cell: Cell, classifier_record: Record | None = None) -> dict[str, Any]:
    """Return the request for a record: without folders, with resolved options.

    classifier_record: the record of the classifier that the cell uses. If its precision differs
    from the cell's, `features_in` is not resolved, since no option requests such a classifier.
    """
    settings, resolved = cell.settings, dict[str, Any]()
    # options that this task does not support would make the printed command invalid
    supported = cell.task.supported_options
    if "engine" in supported:
        resolved["engine"] = cell.task.engine
    if cell.task.distributed_training is not None:
        resolved["gpus"] = this_process().num_processes
    training_options = {
        name: value
        for name, value in changed_fields(settings.training).items()
        if name in supported
    }
    shared = ("features_in", "keep_crops", "image_memory_gb")
    defaults = {name: getattr(Settings(), name) for name in shared if name not in supported}
    training = replace(TrainingOptions(**training_options), **resolved)
    settings = replace(settings, training=training, **defaults)
    precision = cell.feature_backbone.precision
    if not cell.task.trains_backbone and (
        classifier_record is None or features_in(classifier_record) == precision
    ):
        settings = replace(settings, features_in=precision)
    request = replace(cell.request, settings=settings, with_weights=False)
    if (opened := cell.backbone.checkpoint) is not None:  # resolves the name, too
        declared = cell.backbone.declared or None
        checkpoint = replace(request.checkpoint, name=opened.name, declared=declared)
        request = replace(request, checkpoint=checkpoint)
    content = to_json(request)
    del content["file_sha256"]  # the record has the backbone's
    for name in ("data", "results", "runs"):
        del content["settings"][name]
    if opened is None:  # Python code created the backbone: no command line can select it
        del content["checkpoint"]
    elif request.checkpoint.origin.file:  # the copy is removed after the evaluation
        content["checkpoint"]["ckpt"] = request.checkpoint.origin.file
    elif address := address_of(
        request.checkpoint.ckpt
    ):  # the cache path is valid on this machine only
        content["checkpoint"]["ckpt"] = address
        network = content["checkpoint"]["network"]
        network["encoder"] = (
            address_of(network["encoder"].removeprefix("hf:")) or network["encoder"]
        )
    input_format = cell.backbone.input
    images = {
        "mean": [*input_format.mean],
        "std": [*input_format.std],
        "size_px": input_format.size_px,
    }
    return content | {"input": images}


def _backbone_fields(backbone: Encoder) -> dict[str, Any]:
    names = ["name", "arch", "stem", "sha256", "file_sha256", "source", "made_by"]
    if not backbone.is_resnet:
        names.append("library")
    weights = (
        tensor.numel()
        for name, tensor in backbone.state_dict.items()
        if tensor.is_floating_point() and "running_" not in name
    )
    return {name: getattr(backbone, name) for name in names} | {"num_parameters": sum(weights)}
