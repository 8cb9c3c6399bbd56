"""Pages of a made results folder equal the stored ones.

After an intended change, run `python -m tests.benchmarks.results.test_kept_pages` and review the
diff.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.report_parts.compare import compared
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from benchmarks.tables import write_tables
from tests.benchmarks.drawing.figure_records import snapshot
from tests.synthetic_records import failure, record
from transfer.outcomes import per_image
from transfer.record import UNTRAINED

KEPT = Path(__file__).parents[1] / "kept" / "made_folder"
DETECTION = {"task": "voc0712_det_c4", "metric": "AP50"}
CIFAR = {"task": "cifar10_linear", "protocol": "uniclr-2022/1"}


def origin(recipe: str, **changes: Any) -> dict[str, Any]:
    method = recipe.partition("/")[0]
    data = "in1k (1281167 images)" if "in1k" in recipe else "cifar10 (50000 images)"
    return {"method": method, "recipe": recipe, "epochs": 200.0, "data": data} | changes


def named(name: str) -> dict[str, str]:
    """The name of a backbone, and weights of its own."""
    return {"backbone": name, "sha256": f"{name:0<64}"}


def put(results: Path, name: str, score: float, recipe: str = "", **changes: Any) -> None:
    weights = named(name) | {key: changes.pop(key) for key in ("sha256",) if key in changes}
    record(results, score, **weights, made_by=origin(recipe) if recipe else {}, **changes)


def answers(share: float, seed: int) -> dict[str, Any]:
    return per_image(np.random.default_rng(seed).random(400) < share, np.arange(400) % 5)


def make_folder(results: Path) -> None:
    # verdicts, seeds, other readings, missing errors, settings that differ
    for seed in (0, 1, 2):
        put(results, "co2", 85.0 + seed / 4, "co2/in1k-r50-v2", seed=seed)
    put(results, "co2", 82.0, "co2/in1k-r50-v2", **DETECTION)
    put(results, "moco", 80.0, "moco/in1k-r50-v2", details={"num_test": None})
    put(results, "moco-v1", 60.0, "moco/in1k-r50-v1", details={"interval95": {"mAP": 0.5}})
    put(results, "longer", 85.0, "co2/in1k-r50-v2", departures=["C 2 instead of 1"])
    record(results, 84.0, backbone="changed", made_by=origin("co2/in1k-r50-v2", changed={"lr": 1}))
    record(results, 24.0, backbone="none", made_by={"method": UNTRAINED}, **DETECTION)
    put(results, "declared", 84.0, content={"declared": "co2/in1k-r50-v2"})
    # twins, altered, generated, tolerated, short, other conditions, two states of one column
    put(results, "twin", 70.0, sha256="b" * 64)
    put(results, "twin", 71.0, sha256="c" * 64, **DETECTION)
    put(results, "altered", 70.0, hash="other", departures=["epochs 2 instead of 100", "a | b"])
    for fingerprint, day in (("f", 1), ("g", 2)):
        day_of = {"finished": f"2026-01-0{day}T00:00:00Z", "small": "generated"}
        put(results, "small", 50.0 + day, fingerprint=fingerprint, seed=day, **day_of)
    put(results, "bad", 60.0, tolerated=3, details={"at_grid_edge": True})
    for engine, seed in (("batched", 0), ("batched", 1), ("sklearn", 2)):
        put(results, "engines", 65.0 + seed, schedule="short", hash="s", engine=engine, seed=seed)
    failure(results, "voc07_svm", "OOM: out of | memory", seed=7, **named("co2"))
    failure(results, "voc07_svm", "disk full", seed=1, **named("bad"))
    failure(
        results,
        "voc07_svm",
        "killed",
        schedule="smoke",
        backbone="lost",
        small="generated",
        sha256="",
    )
    # the mean over twelve tasks, whole and in part
    for location, task in enumerate(transfer_tasks()):
        cell = {"task": task, "protocol": "lorac-2021/1"}
        put(results, "lorac", 50.0 + location, "lorac/in1k-r50", **cell)
        if location % 2:
            put(results, "part", 40.0 + location, "swav/in1k-r50-2x224-6x96", **cell)
    # methods of one size, paired by image; one does not store its answers
    for location, method in enumerate(("simclr", "byol", "moco", "random")):
        share = 0.5 + 0.1 * location
        cell = {**CIFAR, "arch": "resnet18", "hash": "small", "schedule": "0.02"}
        ours = (
            {"details": answers(share, location)} if location else {"details": {"num_test": None}}
        )
        put(results, method, 100 * share, f"{method}/cifar10-cpu", **cell, **ours)
    for epoch in (1, 2, 10):
        snapshot(results, "run", "simaffinity/cifar10-fig2", epoch, 10.0 + epoch)
    for name, text in (("torn", '{"format": "ssl-rec'), ("foreign", '{"a": 1}')):
        (results / "records" / f"{name}.json").write_text(text)


def shown(results: Path) -> dict[str, str]:
    """Return one page of each kind, results.csv, a curve and comparisons."""
    contents = read_contents(results)
    write_tables(contents, with_latex=True)
    files = ["results.csv", "tables/overview.md", "tables/methods.md", "tables/methods.tex"]
    files += ["tables/co2_table3.md", "tables/lorac_table2.tex", "tables/jcl_table3.md"]
    files += [path.relative_to(results).as_posix() for path in results.glob("figures/*.csv")]
    texts = {Path(name).name: (results / name).read_text() for name in files}
    stated = (results / "tables" / "stated.md").read_text()
    texts["stated_co2.md"] = f"## CO2{stated.partition('## CO2')[2].partition('## ')[0]}"
    comparison = compared(contents.numbers, lambda files: "")
    assert comparison is not None
    shown = [*comparison.sentences, comparison.content]
    texts["comparisons.json"] = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
    return texts


def test_pages_of_the_made_folder_are_the_kept_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(Path("results"))
    texts = shown(Path("results"))
    assert sorted(texts) == sorted(path.name for path in KEPT.iterdir())
    changed = {name: text for name, text in texts.items() if text != (KEPT / name).read_text()}
    assert not changed


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    make_folder(folder / "results")
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, text in shown(folder / "results").items():
        (KEPT / name).write_text(text.replace(f"{folder}/", ""))
