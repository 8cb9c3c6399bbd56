"""Results for a model card: python -m benchmarks.export --name mine --format model-index.

Prints the block `model-index` of the metadata of a Hugging Face model card (YAML, at the top of its
README.md; format: github.com/huggingface/hub-docs, modelcard.md). Each metric has its protocol,
schedule, data, seeds and deviations as arguments. Results without a task of that format, such as
statistics of views, or of a plugin that is not installed, are left out and named on stderr, as are
failed evaluations.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.results.chosen_table import rows_of
from benchmarks.results.contents import named_folders, read_contents
from benchmarks.results.numbers import Number, main_numbers
from benchmarks.words import plural, tolerated_notes
from pretrain.running.command_line import OptionError, one_line_errors, parse, run_command
from transfer.datasets.catalog import DATASETS
from transfer.tasks import TASKS

CLASSIFICATION = "image-classification"
TASK_TYPES = {
    **dict.fromkeys(
        ("Linear transfer", "VOC 2007 SVM", "Linear probes", "Semi-supervised", "Robustness"),
        CLASSIFICATION,
    ),
    "Nearest neighbors": CLASSIFICATION,
    "Segmentation of frozen encoders": "image-segmentation",
    "coco_det": "object-detection",
    "voc0712_det_c4": "object-detection",
    "coco_insseg": "image-segmentation",
    "voc12_seg_fcn": "image-segmentation",
    "coco_keypoint": "keypoint-detection",
}
"""Hugging Face tasks by our task ids or task groups."""
METRIC_TYPES = {
    **dict.fromkeys(("top1", "top5", "acc"), "accuracy"),
    "mean_per_class": "mean_per_class_accuracy",
    "mIoU": "mean_iou",
    "mAP": "mean_average_precision",
}
"""Hugging Face metrics by prefix of ours; others keep their name."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Print one checkpoint's results in a format of another project."""

    name: str
    """Name of the checkpoint."""
    format: Literal["model-index"] = "model-index"
    """model-index: metadata of a Hugging Face model card."""
    results: Path = Path("results")
    """Folder of records."""


def task_type(number: Number) -> str:
    """Return the Hugging Face task of a result; empty if there is none."""
    return TASK_TYPES.get(number.task, TASK_TYPES.get(number.runs[0].heading, ""))


def _left_out(number: Number) -> str:
    """Return why a result is left out; empty if it is exported."""
    key = number.runs[0].key
    if not task_type(number):
        return f"{key} has no task there"
    return "" if key in TASKS else f"{key} is not a task of this installation"


def _result(number: Number) -> dict[str, Any]:
    """Return a result as an entry of a model card's metadata."""
    run, task = number.runs[0], TASKS[number.runs[0].key]
    dataset = DATASETS[task.dataset]
    metrics = []
    for metric in dict.fromkeys([number.metric, *run.metrics]):
        values = [result.metrics[metric] for result in number.runs if metric in result.metrics]
        types = (kind for start, kind in METRIC_TYPES.items() if metric.startswith(start))
        metrics.append(
            {
                "type": next(types, metric),
                "name": metric,
                "value": round(sum(values) / len(values), 4),
                "args": {
                    "task": run.key,
                    "protocol": run.protocol,
                    "schedule": run.schedule,
                    "data": run.reasons.data or "full data",
                    "engine": run.record.engine,
                    "seeds": [result.seed for result in number.runs],
                    "deviations": [*run.record.departures, *tolerated_notes(run.tolerated)],
                },
            }
        )
    return {
        "task": {"type": task_type(number), "name": run.heading},
        "dataset": {"type": task.dataset, "name": dataset.title, "split": "test"},
        "metrics": metrics,
    }


@one_line_errors(ValueError, OSError)
def main(args: Sequence[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(ExportOptions, [*args], description=__doc__)
    contents = read_contents(request.results)
    numbers = main_numbers(contents.numbers)
    with named_folders([request.results]):
        backbones = rows_of(numbers, [request.name])
        if len(backbones) > 1:
            files = plural(len(backbones), "file")
            raise OptionError(f"--name {request.name}: {files} have this name")
    selected = [number for number in numbers if number.backbone.identity in backbones]
    results = [_result(number) for number in selected if not _left_out(number)]
    content = {"model-index": [{"name": request.name, "results": results}]}
    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), end="")
    left_out = [text for number in selected if (text := _left_out(number))]
    left_out += [
        f"{run.task} failed"
        for run in contents.results.runs
        if run.failure and run.backbone.name == request.name
    ]
    for text in dict.fromkeys(left_out):
        print(f"left out: {text}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
