"""Numbers of the running texts and ours beside them."""

from pathlib import Path
from typing import Any

from benchmarks.results.published import papers
from pretrain.recipes import RECIPES
from tests.benchmarks.results.test_published_rows import made_by
from tests.synthetic_records import page, record
from transfer.tasks import TASKS, reading_of

PROBE: dict[str, Any] = {"task": "in100_linear", "protocol": "co2-2021/1", "arch": "resnet18"}


def put(results: Path, score: float, recipe: str, **changes: Any) -> None:
    origin = made_by(recipe) | changes.pop("made_by", {})
    backbone = recipe.replace("/", "-")
    sha256 = recipe.encode().hex().ljust(64, "0")[:64]
    record(results, score, backbone=backbone, sha256=sha256, made_by=origin, **(PROBE | changes))


def line_of(results: Path, words: str) -> list[str]:
    text = page(results, "stated.md")
    (line,) = (line for line in text.splitlines() if line.startswith("|") and words in line)
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


def test_probes_during_pretraining_get_verdicts(tmp_path: Path) -> None:
    put(tmp_path, 69.0, "co2/in100-r18")
    judged = ["69.2", "69.00", "-0.20", "[-2.2, +1.8]", "inconclusive"]
    assert line_of(tmp_path, "best_top1")[1:] == judged
    assert line_of(tmp_path, "without_consistency_top1")[2] == "not run"
    rounded = {"features_in": "bfloat16"}
    departed = ["frozen features in bfloat16, batch norms folded"]
    put(tmp_path, 69.2, "co2/in100-r18", details=rounded, departures=departed, seed=1)
    assert line_of(tmp_path, "best_top1")[1:] == judged  # a further row, no further run
    means = {"last_epoch": {"instance_accuracy": 97.2}}
    smoke: dict[str, Any] = {"schedule": "smoke", "made_by": means}
    put(tmp_path, 10.0, "moco/in100-r18-v1", **smoke)
    put(tmp_path, 10.0, "moco/in100-r18-v1", **smoke, details=rounded, seed=1)  # another row, too
    judged = ["97.57", "97.20", "-0.37", "[-1.2, +0.5]", "inconclusive"]
    assert line_of(tmp_path, "inst_acc_moco_final")[1:] == judged


def test_a_difference_to_a_cited_number_is_not_judged(tmp_path: Path) -> None:
    probe = {"task": "in1k_linear", "protocol": "uniclr-2022/1", "arch": "resnet50"}
    name = "simaffinity/in1k-r50-tricks-temperature-symmetric-momentum-multicrop-predictor"
    put(tmp_path, 73.0, name, **probe)
    put(tmp_path, 70.0, "simsiam/in1k-r50-epochs200", **probe)
    judged = ["3.00", "-0.80", "[-1.7, +0.1]", "no verdict"]
    assert line_of(tmp_path, "| SimAffinity over SimSiam")[2:] == judged


def sweep_alpha(results: Path, scores: dict[int, float]) -> None:
    for alpha, score in scores.items():
        put(results, score, "co2/in100-r18" + (f"-weight{alpha}" if alpha != 10 else ""))


def test_the_best_setting_of_a_sweep_without_a_gap_gets_a_verdict(tmp_path: Path) -> None:
    sweep_alpha(tmp_path, {1: 64.0, 10: 69.0})
    assert line_of(tmp_path, "| best_alpha")[2:5] == ["2 of 6 values run", "–", "–"]
    missing = "- needs pre-training `co2/in100-r18-weight20`, then `in100_linear` (co2-2021)\n"
    assert missing in page(tmp_path, "stated.md")
    for at_20, ours, arg in [
        (68.0, "10", "reproduced"),
        (69.4, "20", "inconclusive"),
        (73.0, "20", "another"),
    ]:
        sweep_alpha(tmp_path, {1: 64.0, 3: 66.0, 5: 68.0, 10: 69.0, 20: at_20, 30: 60.0})
        line = ["best_alpha", "10", ours, "–", "–", arg]
        assert line_of(tmp_path, "| best_alpha") == line


def test_what_stands_against_a_number_is_a_recipe_and_a_task() -> None:
    tasks = {(reading_of(k)[0], task.protocol.partition("/")[0]) for k, task in TASKS.items()}
    wrong = [
        (statement.where, item)
        for paper in papers()
        for statement in paper.stated
        for item in statement.measured
        if not isinstance(statement.values[item.value], int | float)
        or not set(item.recipes) <= set(RECIPES)
        or (item.task and (item.task, item.protocol) not in tasks)
    ]
    assert wrong == []
