"""Records of runs that figures show, written by hand."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.drawing.figure import figures
from benchmarks.drawing.kinds import Inputs, Picture
from benchmarks.drawing.logs import read_logs
from benchmarks.drawing.panels import Lines
from benchmarks.results.records import read_results
from pretrain.job import flatten
from pretrain.recipes import RECIPES
from tests.synthetic_records import put, record

IN100 = "train (126689 images, fingerprint f)"


def drawn(results: Path, figure: str) -> tuple[Picture | None, list[str]]:
    """Return a figure's plots, and messages on missing data."""
    return figures()[figure].draw(Inputs(read_results(results), read_logs(results)[0]))


def picture_of(results: Path, figure: str) -> Picture:
    picture, _ = drawn(results, figure)
    assert picture
    return picture


def caption_of(results: Path, figure: str) -> str:
    return figures()[figure].caption(picture_of(results, figure))


def line_panels(results: Path, figure: str) -> list[Lines]:
    return [p for p in picture_of(results, figure).panels if isinstance(p, Lines)]


def origin(recipe: str, **changes: Any) -> dict[str, Any]:
    """Return the origin of a backbone.

    Settings by dotted name, with _ for the first dot.
    """
    settings = {"method": recipe.partition("/")[0], "learning_rate": 0.1}
    settings |= changes.pop("settings", {})
    return {
        "method": recipe.partition("/")[0],
        "recipe": recipe,
        "epochs": 100.0,
        "data": IN100,
        "seed": 0,
        "precision": "bfloat16",
        "settings": settings,
        "changed": {},
    } | changes


def settings_of(recipe: str) -> dict[str, object]:
    return flatten(asdict(RECIPES[recipe]))


def point(
    results: Path, recipe: str, score: float, settings: dict[str, Any], **changes: Any
) -> None:
    name = changes.pop("backbone", recipe.replace("/", "-") + changes.pop("suffix", ""))
    made_by = origin(recipe, settings=settings) | changes.pop("made_by", {})
    cell = {"backbone": name, "sha256": name.ljust(64, "0")[:64], "arch": "resnet18"}
    cell |= {"task": "in100_linear", "protocol": "jcl-2020/1", "engine": "torch"}
    folder = changes.pop("folder", "records")
    record(results / folder, score, made_by=made_by, **(cell | changes))


def jcl_keys(results: Path, scores: dict[int, float], **changes: Any) -> None:
    """Write the records of JCL's Figure 2(a)."""
    for keys, score in scores.items():
        recipe = "jcl/in100-r18" + ("" if keys == 5 else f"-keys{keys}")
        point(results, recipe, score, {"config.num_keys": keys}, **changes)


def views(results: Path, recipe: str, counts: dict[str, list[int]], **changes: Any) -> None:
    """Write a record of view statistics, with histograms of four bins."""
    edges = [0.0, 0.25, 0.5, 0.75, 1.0]
    details = {
        "num_views": 32,
        "space": "embedding",
        "histograms": {name: {"edges": edges, "counts": ours} for name, ours in counts.items()},
        **{name: np.average(np.array(edges[:4]) + 0.125, weights=n) for name, n in counts.items()},
    } | changes.pop("details", {})
    cell = {"task": "cifar10_view_statistics", "protocol": "lorac-2021/1", "metric": "mean_cosine"}
    point(results, recipe, 50.0, changes.pop("settings", {}), details=details, **(cell | changes))


def snapshot(
    results: Path, run: str, recipe: str, epoch: int, score: float, **changes: Any
) -> None:
    """Write the record of one snapshot of a run of 10 epochs."""
    cell = {"backbone": f"{run}@epoch{epoch:04d}", "made_by": {"epochs": float(epoch)}}
    cell |= {"task": "cifar10_knn", "protocol": "uniclr-2022/1", "folder": "records/snapshots"}
    point(results, recipe, score, {"epochs": 10}, **(cell | changes))


def training_log(
    results: Path, name: str, recipe: str, metrics: dict[str, list[float]], **changes: Any
) -> None:
    """Write the log of a 10-epoch run with equally spaced metrics."""
    count = len(next(iter(metrics.values())))
    settings = {"epochs": 10, "arch": "resnet18", "config.consistency_temperature": 0.05}
    settings["batch_size"] = changes.pop("batch", 64)
    steps = range(1, count + 1)
    content = {
        "format": "ssl-training-log/1",
        "name": name,
        "made_by": origin(recipe, settings=settings, epochs=10.0, steps=count, **changes),
        "metrics": {"step": [*steps], "epoch": [10 * i / count for i in steps], **metrics},
    }
    put(results / "training", f"{name}.json", content)
