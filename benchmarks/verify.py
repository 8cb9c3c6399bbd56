"""Verify records, your own or those of others: python -m benchmarks.verify RESULTS...

Prints a grade for each record, and a line for each contradiction:
- the hash of its content, and its path, which follows from the content;
- the protocol's hash, from the stored fields;
- each metric that the stored answers give: right answers per image, values per class, trials;
- one name for one backbone, and a published file under the recipe that trained it.

"consistent": the main metric was recomputed from stored answers. "stored only": it cannot be, as AP
and mAP over pixels. A consistent record is not proven to be genuine: anybody can compute a hash.
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
from benchmarks.results.records import plural, require_folder
from pretrain.running.command_line import one_line_errors, parse, run_command
from transfer.encoders.public_files import PUBLIC_FILES
from transfer.outcomes import PER_IMAGE, RESAMPLED, read_per_image, read_resampled
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
"""Largest difference in points of a recomputed metric: values per class are rounded to 0.01."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Verify the records of results folders."""

    results: Annotated[tuple[Path, ...], tyro.conf.Positional] = (Path("results"),)
    """Folders of results."""
    quiet: bool = False
    """Print contradictions and the counts alone."""


def contradictions(record: Record) -> Iterator[str]:
    """Yield what in a record contradicts itself."""
    yield from _of_protocol(record)
    yield from _of_metrics(record)
    known = [one for one in PUBLIC_FILES if one.algorithm == "sha256" and one.digest]
    file_hash = str(record.backbone.get("file_sha256", ""))
    for public in known:
        is_other = record.declared and public.recipe and record.declared != public.recipe
        if file_hash and file_hash.startswith(public.digest) and is_other:
            yield f"declared as {record.declared}, but the file is {public.file}: {public.recipe}"


def _of_protocol(record: Record) -> Iterator[str]:
    key = str(record.request.get("task", record.task))
    try:
        kind = type(task_of(key))
        found = hash_of_fields(record.task, kind, record.protocol["fields"])
    except ValueError:
        return  # a task of a plugin, or of another version
    except KeyError as error:
        yield f"the protocol has no field {error}"
        return
    if found != record.protocol["hash"]:
        yield f"the protocol's fields have the hash {found}, not {record.protocol['hash']}"


def recomputed(record: Record) -> dict[str, float]:
    """Return the metrics that the stored answers give, in percent."""
    details, metrics = record.details, dict[str, float]()
    if (answers := read_per_image(details)) is not None:
        name = record.primary_metric
        metrics[name] = 100 * float(answers.weights(name) @ answers.shares)
        if "top1" in record.metrics:
            metrics["top1"] = 100 * float(answers.shares.mean())
    for values in (details.get("trials"), details.get("draws")):
        if isinstance(values, Mapping):
            metrics |= {name: fmean(of_trials) for name, of_trials in values.items()}
    if precisions := [row["AP"] for row in details.get("classes", {}).values() if "AP" in row]:
        metrics["mAP"] = fmean(precisions)
    if overlaps := [v for v in details.get("IoU_per_class", {}).values() if v is not None]:
        metrics["mIoU"] = fmean(overlaps)
    return {name: value for name, value in metrics.items() if name in record.metrics}


def _of_metrics(record: Record) -> Iterator[str]:
    details = record.details
    for name, value in recomputed(record).items():
        if not abs(value - record.metrics[name]) <= TOLERANCE:
            yield f"{name} is {record.metrics[name]:.4f}, but its stored answers give {value:.4f}"
    answers = read_per_image(details)
    if PER_IMAGE in details and answers is None:
        yield "the answers per image are not as many as it says"
    if answers is not None:
        counted = details.get("num_test")
        if isinstance(counted, int) and counted % len(answers.labels):
            yield f"{len(answers.labels):,} answers, but {counted:,} test images"
        per_class = [*details.get("accuracy_per_class", {}).values()]
        classes = np.unique(answers.labels)
        if len(per_class) == len(classes):
            own = [100 * answers.shares[answers.labels == label].mean() for label in classes]
            # the file has the names in another order than the labels
            if not np.allclose(np.sort(own), np.sort(per_class), rtol=0, atol=TOLERANCE):
                yield "the accuracies per class are not those of the answers per image"
    for name, half in details.get("interval95", {}).items():
        trials = details.get("trials", {}).get(name, ())
        expected = TWO_SIDED * stdev(trials) / math.sqrt(len(trials)) if len(trials) > 1 else half
        if not abs(expected - half) <= TOLERANCE:
            yield f"the interval of {name} is {half:.4f}, but its trials give {expected:.4f}"
    if RESAMPLED in details:
        for name in details[RESAMPLED].get("values", {}):
            values = read_resampled(details, name)
            # the resampled metric spreads around that of the whole test set
            if name in record.metrics and values is not None and len(values):
                value, spread = record.metrics[name], np.ptp(values) + TOLERANCE
                if not values.min() - spread <= value <= values.max() + spread:
                    yield f"{name} is {value:.4f}, far from its resampled values"


def verify(results: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield each record file of a results folder, its grade, and its contradictions."""
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
            reason = f"no field {error}" if isinstance(error, KeyError) else str(error)
            yield path, "not a record", [reason.splitlines()[0] if reason else type(error).__name__]
            continue
        found = [*contradictions(record)]
        expected = cell_path(path.parents[len(cell_path(Path(), record).parts) - 1], record)
        if not is_record_file(path, expected):
            found.append(f"its path should end in {cell_path(Path(), record).as_posix()}")
        # the hash of another network than a ResNet is also one of its images' size
        name, images = record.backbone["name"], json.dumps(record.request.get("input"))
        weights = record.backbone["sha256"]
        other, first = names.setdefault((name, images), (weights, path))
        if other != weights:
            found.append(f"{name} has the weights {weights[:12]}, but {other[:12]} in {first.name}")
        is_recomputed = record.primary_metric in recomputed(record)
        yield path, "consistent" if is_recomputed else "stored only", found


@one_line_errors(ValueError, OSError, RecordError)
def main(words: Sequence[str]) -> int:
    """Run the command line; return its exit status."""
    request = parse(Request, [*words], description=__doc__)
    grades: dict[str, int] = {}
    num_wrong = 0
    for folder in request.results:
        require_folder(folder)
        for path, grade, found in verify(folder):
            grade = "contradicts itself" if found else grade
            grades[grade] = grades.get(grade, 0) + 1
            num_wrong += len(found)
            if found or not request.quiet:
                print(f"{grade:18}  {path}")
            for line in found:
                print(f"  {line}")
    counts = ", ".join(f"{count} {grade}" for grade, count in sorted(grades.items()))
    print(f"{plural(sum(grades.values()), 'record')}: {counts or 'none'}")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    run_command(main, only_prints=True)
