"""Comparison of a public checkpoint with the numbers that are published for exactly this file.

It tells whether an installation measures what others measure. The file is recognized by its
published hash, so nothing but its path is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pages.calibration import FILE, FORMAT
from benchmarks.pages.verdict import tolerance, verdict
from transfer.backbone import Backbone
from transfer.cells.request import Cell
from transfer.cells.staleness import finished
from transfer.convert.public_files import PublicFile, recognize_file
from transfer.record import Record, write_json
from transfer.tasks import TASKS, reading_of

CHEAP_GPU_HOURS = 1.0
"""Estimated length of a task up to which it runs without --full."""

README = "README of github.com/facebookresearch/moco, table of models"
DETECTION = "detection/README of github.com/facebookresearch/moco, mean of 5 trials"
CO2_TABLE = "CO2 (arXiv:2010.02217), Table 3, on the officially released model"


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


def moco_numbers(
    top1: float, detection: tuple[float, float, float], svm: float | None = None
) -> tuple[KnownNumber, ...]:
    """Return the numbers of one of MoCo's files; detection: AP50, AP, AP75 on VOC."""
    names = zip(("AP50", "AP", "AP75"), detection, strict=True)
    return (
        *(
            KnownNumber(key="voc07_svm", metric="mAP", value=value, source=CO2_TABLE)
            for value in [svm]
            if value is not None
        ),
        KnownNumber(key="in1k_linear@moco", metric="top1", value=top1, source=README),
        *(
            KnownNumber(key="voc0712_det_c4@moco", metric=name, value=value, source=DETECTION)
            for name, value in names
        ),
    )


KNOWN_NUMBERS: Mapping[str, tuple[KnownNumber, ...]] = {
    "moco_v1_200ep_pretrain.pth.tar": moco_numbers(60.6, (81.5, 55.9, 62.6), svm=79.7),
    "moco_v2_200ep_pretrain.pth.tar": moco_numbers(67.7, (82.4, 57.0, 63.6), svm=85.0),
    "moco_v2_800ep_pretrain.pth.tar": moco_numbers(71.1, (82.5, 57.4, 64.0)),
}
"""Published numbers by the name of the file."""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A public file and its numbers."""

    file: PublicFile
    numbers: tuple[KnownNumber, ...]

    def keys(self, backbone: Backbone, *, full: bool) -> list[str]:
        """Return the keys of its tasks, cheap ones first; ValueError if none is cheap enough.

        full: also those that take more than CHEAP_GPU_HOURS.
        """
        keys = dict.fromkeys(number.key for number in self.numbers)
        hours = {key: TASKS[key].gpu_hours(backbone) for key in keys}
        chosen = [key for key in keys if full or hours[key] <= CHEAP_GPU_HOURS]
        if not chosen:
            shortest = min(hours, key=lambda key: hours[key])
            raise ValueError(
                f"--calibrate: the shortest task with a published number of {self.file.what} is "
                f"{shortest}, about {hours[shortest]:.0f} GPU hours; add --full to run it"
            )
        return sorted(chosen, key=lambda key: hours[key])


def reference_of(ckpt: Path) -> Reference:
    """Return the reference that a file is; ValueError if it is none."""
    if not ckpt.is_file():
        raise FileNotFoundError(f"{ckpt}: no such file")
    known = recognize_file(ckpt)
    numbers = KNOWN_NUMBERS.get(known.file, ()) if known else ()
    if known is None or not numbers:
        is_what = f"it is {known.what}" if known else "its hash is none of the known ones"
        raise ValueError(
            f"--calibrate --ckpt {ckpt}: no published number of this file is known ({is_what}); "
            f"expected one of {', '.join(KNOWN_NUMBERS)}"
        )
    return Reference(file=known, numbers=numbers)


def write_calibration(results: Path, reference: Reference, cells: Sequence[Cell]) -> None:
    """Compare the finished cells with the reference, and write results/calibration.json.

    A number that was measured on other data or under a changed protocol does not count.
    """
    records = {
        key: [record for cell in cells if cell.key == key and (record := finished(cell))]
        for key in dict.fromkeys(number.key for number in reference.numbers)
    }
    numbers = [
        _comparison(number, fitting)
        for number in reference.numbers
        if (fitting := [record for record in records[number.key] if _fits(number, record)])
    ]
    used = [record for number in numbers for record in records[number["key"]]]
    compared = {number["key"] for number in numbers}
    content = {
        "format": FORMAT,
        "reference": reference.file.what,
        "file": reference.file.file,
        "sha256": used[0].backbone["file_sha256"] if used else "",
        "finished": max((record.finished for record in used), default=""),
        "machine": " and ".join(sorted({_machine(record) for record in used})),
        "commit": " and ".join(sorted({record.commit for record in used})),
        "numbers": numbers,
        "not_compared": sorted(set(records) - compared),
    }
    write_json(results / FILE, content, "--results")


def _fits(number: KnownNumber, record: Record) -> bool:
    small = max((str(data["small"]) for data in record.data.values()), default="")
    unchanged = record.protocol["hash"] == record.protocol["paper_hash"]
    return small == number.data and unchanged and number.metric in record.metrics


def _comparison(number: KnownNumber, records: Sequence[Record]) -> dict[str, Any]:
    task, ours = reading_of(number.key)[0], fmean(r.metrics[number.metric] for r in records)
    published = {"published" if k == "value" else k: v for k, v in asdict(number).items()}
    return published | {
        "protocol": records[0].protocol["name"],
        "ours": round(ours, 3),
        "seeds": [record.seed for record in records],
        "tolerance": tolerance(task).passes,
        "tolerance_source": tolerance(task).source,
        "within": verdict(ours - number.value, task) == "pass",
        "departures": list(dict.fromkeys(line for r in records for line in r.departures)),
    }


def _machine(record: Record) -> str:
    device = record.hardware.get("accelerator", "none")
    return (
        f"{'a CPU' if device == 'none' else device} ({record.hardware.get('machine', 'unknown')})"
    )
