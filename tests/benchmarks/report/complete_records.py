"""Results folders for the report."""

from pathlib import Path
from typing import Any

from benchmarks.results.published import transfer_tasks
from tests.synthetic_records import failure, record

LORAC = {"method": "lorac", "recipe": "lorac/in1k-r50", "epochs": 200.0, "data": "in1k"}
HOSTILE = "<img src=x onerror=alert(1)>"
ENDS_SCRIPT = "</script><script>alert(2)</script>\u2028"


def backbone(name: str, arch: str = "resnet50", **changes: Any) -> dict[str, Any]:
    """Return a record's entry of a backbone."""
    entry = {"name": name, "arch": arch, "stem": "imagenet", "sha256": name, "source": ""}
    return entry | {"made_by": {}} | changes


def complete(results: Path, name: str, task: str, seed: int = 0, **changes: Any) -> None:
    """Write a record under the paper's protocol, with changed entries."""
    data = {"aircraft": {"fingerprint": "f", "small": "", "counts": {"test": 3}, "tolerated": 0}}
    entries = {
        "metrics": {"mean_per_class": 47.5},
        "primary_metric": "mean_per_class",
        "heading": "Linear transfer",
        "data": data,
        "details": {},
        "request": {"task": task, "backbone": ["--ckpt", "mine.pt"], "options": [], "input": {}},
    }
    cell = {"backbone": name, "task": task, "protocol": "lorac-2021/1", "seed": seed}
    cell |= {"made_by": LORAC, "content": entries | changes}
    record(results, 47.5, hash="paper", **cell)


def usual(results: Path) -> Path:
    """Write results of two checkpoints on three tasks, with hostile text."""
    for number, task in enumerate(transfer_tasks()[:3]):
        complete(results, "mine", task, metrics={"mean_per_class": 47.5 + 9 * number})
    complete(
        results,
        HOSTILE,
        transfer_tasks()[0],
        departures=[f"epochs 2 instead of 100 {ENDS_SCRIPT}"],
        metrics={"mean_per_class": 40.0},
        details={
            "learning_rate": 1.0,
            "val_accuracy": {"0.1": 40.0, "1.0": 50.0, "10.0": 45.0},
            "accuracy_per_class": {HOSTILE: 60.0, "cat": 20.0},
            "most_confused": [{"class": "cat", "taken_for": HOSTILE, "images": 3, "of": 9}],
        },
    )
    failure(results, transfer_tasks()[3], f"no such file {HOSTILE}")
    return results
