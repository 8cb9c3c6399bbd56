"""Verify records: python -m benchmarks.verify RESULTS...

Prints the outcome for each record, and a line for each contradiction:
- the hash of its content, and its path, which follows from the content;
- the protocol's hash, from the stored fields;
- metrics recomputed from stored answers (correct images, values per class, trials);
- one name for one backbone, and the recipe that trained a published file.

"consistent": the main metric was recomputed from stored answers. "stored only": it cannot be
recomputed (AP and mAP over pixels). A consistent record may still be forged, since anybody can
compute a hash.
Exit status: 0 no contradiction, 1 contradictions, 2 the request is wrong.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import numpy as np
import tyro

from benchmarks.results.differences import TWO_SIDED
from benchmarks.results.records import reason_of, require_folder
from benchmarks.words import plural
from pretrain.running.command_line import OptionError, one_line_errors, parse, run_command
from transfer.encoders.public_files import recognize
from transfer.outcomes import PER_IMAGE, read_per_image
from transfer.record import (
    RECORDS,
    STATE_FORMAT,
    Record,
    RecordError,
    cell_path,
    hash_of_fields,
    is_record_file,
    record_of,
)
from transfer.tasks import task_of

TOLERANCE = 0.006
"""Tolerance of recomputed metrics in points; class values have two decimals."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Verify the records of results folders."""

    results: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("results"),)
    """Results folders, which contain the folder records."""
    quiet: bool = False
    """Print contradictions and the counts alone."""


def contradictions(record: Record) -> Iterator[str]:
    """Yield a sentence for each contradiction in a record."""
    yield from _metric_contradictions(record)
    public = recognize({"sha256": str(record.backbone.get("file_sha256", "")), "md5": ""})
    if public and record.declared and public.recipe not in ("", record.declared):
        yield f"declared as {record.declared}, but the file is {public.file}: {public.recipe}"
    protocol = record.protocol
    try:
        task_type = type(task_of(str(record.request.get("task", record.task))))
        computed_hash = hash_of_fields(record.task, task_type, protocol["fields"])
        if computed_hash != protocol["hash"]:
            yield f"the protocol's fields have the hash {computed_hash}, not {protocol['hash']}"
    except KeyError as error:
        yield f"the protocol has no field {error}"
    except ValueError:
        pass  # a task of a plugin, or of another version


def recomputed(record: Record) -> dict[str, float]:
    """Return the metrics that the stored answers give, in percent."""
    details, metrics = record.details, dict[str, float]()
    if (answers := read_per_image(details)) is not None:
        name = record.primary_metric
        metrics[name] = 100 * float(answers.weights(name) @ answers.fractions)
        if "top1" in record.metrics:
            metrics["top1"] = 100 * float(answers.fractions.mean())
    for values in (details.get("trials"), details.get("draws")):
        if isinstance(values, Mapping):
            metrics |= {name: fmean(of_trials) for name, of_trials in values.items()}
    if precisions := [row["AP"] for row in details.get("classes", {}).values() if "AP" in row]:
        metrics["mAP"] = fmean(precisions)
    if overlaps := [v for v in details.get("IoU_per_class", {}).values() if v is not None]:
        metrics["mIoU"] = fmean(overlaps)
    return {name: value for name, value in metrics.items() if name in record.metrics}


def _metric_contradictions(record: Record) -> Iterator[str]:
    details = record.details
    for name, value in recomputed(record).items():
        if not abs(value - record.metrics[name]) <= TOLERANCE:
            yield f"{name} is {record.metrics[name]:.4f}, but its stored answers give {value:.4f}"
    answers = read_per_image(details)
    if PER_IMAGE in details and answers is None:
        yield "the number of answers per image differs from the stored number"
    if answers is not None:
        # ImageNet-C counts classes over all corruptions, but images over the main ones
        are_comparable = "classes_counted_over" not in details
        per_class = [*details.get("accuracy_per_class", {}).values()] if are_comparable else []
        classes = np.unique(answers.labels)
        computed = [100 * answers.fractions[answers.labels == c].mean() for c in classes]
        # names may be in a different order than labels
        if len(per_class) == len(classes) and not np.allclose(
            np.sort(computed), np.sort(per_class), rtol=0, atol=TOLERANCE
        ):
            yield "the accuracies per class contradict the answers per image"
    for name, trials in details.get("trials", {}).items():
        half_width = details.get("interval95", {}).get(name)
        if half_width is not None and len(trials) > 1:
            expected_width = TWO_SIDED * stdev(trials) / math.sqrt(len(trials))
            if not abs(expected_width - half_width) <= TOLERANCE:
                yield (
                    f"the interval of {name} is {half_width:.4f}, but its trials give "
                    f"{expected_width:.4f}"
                )


def verify(results: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield each record file of a folder, its outcome, and its contradictions."""
    names: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in sorted((results / RECORDS).rglob("*.json")):
        if path.name.startswith("."):
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["format"] == STATE_FORMAT:
                continue
            record = record_of(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            yield path, "not a record", [reason_of(error)]
            continue
        problems = [*contradictions(record)]
        expected = cell_path(path.parents[len(cell_path(Path(), record).parts) - 1], record)
        if not is_record_file(path, expected):
            problems.append(f"its path should end in {cell_path(Path(), record).as_posix()}")
        # except for ResNets, the hash depends on the image size
        name, images = record.backbone["name"], json.dumps(record.request.get("input"))
        weights = record.backbone["sha256"]
        first_weights, first_path = names.setdefault((name, images), (weights, path))
        if first_weights != weights:
            problems.append(
                f"{name} has the weights {weights[:12]}, "
                f"but {first_weights[:12]} in {first_path.name}"
            )
        is_recomputed = record.primary_metric in recomputed(record)
        yield path, "consistent" if is_recomputed else "stored only", problems


@one_line_errors(ValueError, OSError, RecordError)
def main(args: Sequence[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(VerifyOptions, [*args], description=__doc__)
    num_by_outcome: dict[str, int] = {}
    num_contradictions = 0
    for folder in request.results:
        require_folder(folder)
        if not (folder / RECORDS).is_dir():
            raise OptionError(f"{folder}: no folder {RECORDS}; pass the folder that contains it")
        for path, outcome, problems in verify(folder):
            outcome = "contradicts itself" if problems else outcome
            num_by_outcome[outcome] = num_by_outcome.get(outcome, 0) + 1
            num_contradictions += len(problems)
            if problems or not request.quiet:
                print(f"{outcome:18}  {path}")
            for line in problems:
                print(f"  {line}")
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(num_by_outcome.items()))
    print(f"{plural(sum(num_by_outcome.values()), 'record')}: {counts or 'none'}")
    return 1 if num_contradictions else 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
