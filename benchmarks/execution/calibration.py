"""Comparison of a public checkpoint with the numbers that are published for exactly this file.

It tells whether an installation measures what others measure. The file is recognized by its
published hash, so nothing but its path is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from benchmarks.results.calibration import FILE, FORMAT, calibration_line
from benchmarks.results.differences import run_deviation
from benchmarks.results.records import SMALL_DATA, Run, read_results, tolerated_notes
from benchmarks.tables import update_tables
from transfer.encoders.encoder import Encoder
from transfer.encoders.public_files import PublicFile, recognize_file
from transfer.record import Record, protocol_hash, write_json
from transfer.tasks import TASKS, reading_of

PUBLISHED = Path(__file__).with_name("public_files.yaml")
"""Numbers published for public files."""
CHEAP_GPU_HOURS = 1.0
"""Estimated length of a task up to which it runs without --full."""


@dataclass(frozen=True, kw_only=True)
class KnownNumber:
    """One published number of a file."""

    key: str
    """Key in TASKS of the protocol under which it was measured."""
    metric: str
    value: float
    source: str
    data: str = ""
    """Word for data other than the published ones, such as "generated"; empty for these."""


def known_numbers() -> dict[str, tuple[KnownNumber, ...]]:
    """Return the published numbers of public files by the name of the file."""
    content = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    return {
        file: tuple(KnownNumber(**number) for number in numbers)
        for file, numbers in content.items()
    }


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A public file and its numbers."""

    file: PublicFile
    numbers: tuple[KnownNumber, ...]

    def keys(self, backbone: Encoder, *, full: bool) -> list[str]:
        """Return the keys of its tasks, cheap ones first; ValueError if none is cheap enough.

        full: also those that take more than CHEAP_GPU_HOURS.
        """
        hours = {number.key: TASKS[number.key].gpu_hours(backbone) for number in self.numbers}
        keys = sorted(hours, key=lambda key: hours[key])
        chosen = [key for key in keys if full or hours[key] <= CHEAP_GPU_HOURS]
        if not chosen:
            costs = " and ".join(f"{key} (about {hours[key]:.0f} GPU hours)" for key in keys)
            raise ValueError(
                f"--calibrate: no published number of {self.file.what} is of a task of up to "
                f"{CHEAP_GPU_HOURS:g} GPU hour; add --full to run {costs}"
            )
        return chosen


def reference_of(ckpt: Path) -> Reference:
    """Return the reference that a file is; ValueError if it is none."""
    if not ckpt.is_file():
        raise FileNotFoundError(f"{ckpt}: no such file")
    known = recognize_file(ckpt)
    all_numbers = known_numbers()
    if known is None or known.file not in all_numbers:
        is_what = f"it is {known.what}" if known else "its hash is none of the known ones"
        raise ValueError(
            f"--calibrate --ckpt {ckpt}: no published number of this file is known ({is_what}); "
            f"expected one of {', '.join(all_numbers)}"
        )
    return Reference(file=known, numbers=all_numbers[known.file])


def write_calibration(results: Path, reference: Reference, backbone: Encoder) -> None:
    """Compare the records of a backbone with the reference, and write results/calibration.json.

    All of its records below the results are used, whichever run made them. A number on other or
    incomplete data or under a changed protocol does not count.
    """
    measured = [one for one in read_results(results).done if one.sha256 == backbone.sha256]
    measured.sort(key=lambda one: one.finished)
    of_task = {
        number: [one for one in measured if _is_of(number, one)] for number in reference.numbers
    }
    counted = {number: _counted(number, own) for number, own in of_task.items()}
    used = [one for each in counted.values() for one in each]
    compared = {number.key for number, each in counted.items() if each}
    # of each number without a result that counts, why the newest record does not
    objections = {
        number.key: [why for one in reversed(own) if (why := _objection(number, one))]
        for number, own in of_task.items()
        if number.key not in compared
    }
    content = {
        "format": FORMAT,
        "reference": reference.file.what,
        "file": reference.file.file,
        "sha256": backbone.file_sha256,
        "finished": max((one.finished for one in used), default=""),
        "machine": " and ".join(sorted({_machine(one.record) for one in used})),
        "commit": " and ".join(sorted({one.record.commit for one in used})),
        "numbers": [_comparison(number, each) for number, each in counted.items() if each],
        "not_counted": {key: reasons[0] for key, reasons in objections.items() if reasons},
    }
    write_json(results / FILE, content, "--results")


def finish_calibration(results: Path, reference: Reference, backbone: Encoder) -> bool:
    """Write the comparison, tables and report; return whether tables and report are written."""
    from benchmarks.report import update_report  # a plan needs no report

    write_calibration(results, reference, backbone)
    contents = update_tables(results)
    is_reported = update_report(results, contents=contents)
    print(calibration_line(results))
    return contents is not None and is_reported


def _is_of(number: KnownNumber, result: Run) -> bool:
    """Return whether a result is of the number's task and protocol."""
    task = reading_of(number.key)[0]
    return (result.task, result.protocol) == (task, TASKS[number.key].protocol)


def _counted(number: KnownNumber, own: Sequence[Run]) -> list[Run]:
    """Return the results of its task that count for a number: the newest of each seed, all alike.

    They agree with the newest one in what their mean must not mix, such as engine and arithmetic.
    """
    fitting = [one for one in own if number.metric in one.metrics and not _objection(number, one)]
    like = [one.conditions for one in fitting[-1:]]
    newest = {one.seed: one for one in fitting if one.conditions in like}
    return [newest[seed] for seed in sorted(newest)]


def _objection(number: KnownNumber, result: Run) -> str:
    """Return why a result of its task does not count for a number; empty if it does."""
    paper = protocol_hash(result.task, TASKS[number.key])
    if result.schedule != "paper" or result.protocol_hash != paper:
        return "its protocol is changed"
    if result.small != number.data:
        return SMALL_DATA.get(result.small, "not on generated data")
    return "; ".join(tolerated_notes(result.tolerated))


def _comparison(number: KnownNumber, counted: Sequence[Run]) -> dict[str, Any]:
    ours = fmean(one.metrics[number.metric] for one in counted)
    # the same weights on the same images: no other error
    deviation = run_deviation(reading_of(number.key)[0])
    return {
        "key": number.key,
        "metric": number.metric,
        "published": number.value,
        "source": number.source,
        "data": number.data,
        "protocol": counted[0].protocol,
        "ours": round(ours, 3),
        "seeds": [one.seed for one in counted],
        "finished": max(one.finished for one in counted),
        "tolerance": 2 * deviation.points,
        "tolerance_source": f"twice the deviation from run to run; {deviation.source}",
        "within": round(abs(ours - number.value), 6) <= 2 * deviation.points,
        "departures": list(dict.fromkeys(line for one in counted for line in one.departures)),
    }


def _machine(record: Record) -> str:
    device = record.hardware.get("accelerator", "none")
    device = "a CPU" if device == "none" else device
    return f"{device} ({record.hardware.get('machine', 'unknown')})"
