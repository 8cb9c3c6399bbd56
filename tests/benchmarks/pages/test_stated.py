"""Numbers of the running texts and ours beside them."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages.published import papers
from pretrain.recipes import RECIPES
from tests.benchmarks.pages.test_published_rows import made_by
from tests.synthetic_records import page, record
from transfer.tasks import TASKS, reading_of

MEASURED = [
    (statement, one)
    for paper in papers()
    for statement in paper.stated
    for one in statement.measured
]
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


def test_imagenet_100_of_co2_gets_verdicts(tmp_path: Path) -> None:
    put(tmp_path, 69.0, "co2/in100-r18")
    assert line_of(tmp_path, "best_top1")[1:] == ["69.2", "69.00", "-0.20", "pass", "0.5 / 1.0"]
    assert line_of(tmp_path, "without_consistency_top1")[2] == "not run"


def test_what_our_runs_assume_is_said(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    text = page(tmp_path, "stated.md")
    for words in (
        "Figure 2(a); Figure 2(b); Figure 3; text: of ImageNet-100 .* 200 epochs, batches of 256",
        "section 4 ablation: .* the mean of all classes, with parts below 0 .* is ours",
        "Figure 2(b): the text names best_tau_con alone; .* ours: 0.01, .* 0.2",
    ):
        assert re.search("^- " + words.replace("(", r"\(").replace(")", r"\)"), text, re.M), words


def test_a_gain_is_the_difference_of_two_results(tmp_path: Path) -> None:
    semi = {"task": "in1k_semi_10pct", "protocol": "co2-2021-v1/1", "metric": "top5"}
    put(tmp_path, 82.0, "moco/in1k-r50-v1", arch="resnet50", **semi)
    put(tmp_path, 83.2, "co2/in1k-r50-v1", arch="resnet50", **semi)
    assert line_of(tmp_path, "by_the_abstract")[1:5] == ["1.1", "1.20", "+0.10", "pass"]


def test_the_accuracy_during_pre_training_comes_with_the_backbone(tmp_path: Path) -> None:
    means = {"last_epoch": {"instance_accuracy": 97.2}}
    put(tmp_path, 10.0, "moco/in100-r18-v1", schedule="smoke", made_by=means)
    assert line_of(tmp_path, "inst_acc_moco_final")[1:5] == ["97.57", "97.20", "-0.37", "pass"]


def test_a_shorter_pre_training_is_no_evidence(tmp_path: Path) -> None:
    short = {"last_epoch": {"instance_accuracy": 97.2}, "epochs": 3.0}
    put(tmp_path, 69.0, "moco/in100-r18-v1", made_by=short)
    assert line_of(tmp_path, "inst_acc_moco_final")[2] == "not run"
    assert line_of(tmp_path, "without_consistency_top1")[2] == "not run"


def test_entropies_of_heads_are_in_bits(tmp_path: Path) -> None:
    recipe = "loocpp/in100-r50-color-rotation-texture"
    heads = {"protocol": "looc-2020/1", "arch": "resnet50-heads4"}
    put(tmp_path, 82.0, recipe, details={"head_entropy_bits": 1.4}, **heads)
    assert line_of(tmp_path, "entropy on IN-100")[1:] == [
        "1",
        "1.40",
        "+0.40",
        "warn",
        "0.25 / 0.5",
    ]


def test_a_difference_to_a_cited_number_is_not_judged(tmp_path: Path) -> None:
    probe = {"task": "in1k_linear", "protocol": "uniclr-2022/1", "arch": "resnet50"}
    name = "simaffinity/in1k-r50-tricks-temperature-symmetric-momentum-multicrop-predictor"
    put(tmp_path, 73.0, name, **probe)
    put(tmp_path, 70.0, "simsiam/in1k-r50-epochs200", **probe)
    assert line_of(tmp_path, "| SimAffinity over SimSiam")[2:5] == ["3.00", "-0.80", "not judged"]


def sweep_alpha(results: Path, scores: dict[int, float]) -> None:
    for alpha, score in scores.items():
        put(results, score, "co2/in100-r18" + (f"-weight{alpha}" if alpha != 10 else ""))


@pytest.mark.parametrize(
    ("at_20", "ours", "verdict"), [(68.0, "10", "pass"), (69.4, "20", "warn"), (71.0, "20", "fail")]
)
def test_the_best_setting_of_a_sweep_gets_a_verdict(
    tmp_path: Path, at_20: float, ours: str, verdict: str
) -> None:
    sweep_alpha(tmp_path, {1: 64.0, 3: 66.0, 5: 68.0, 10: 69.0, 20: at_20, 30: 60.0})
    assert line_of(tmp_path, "| best_alpha") == [
        "best_alpha",
        "10",
        ours,
        "–",
        verdict,
        "same value / 0.5 top1",
    ]


def test_a_sweep_with_a_gap_gets_no_verdict(tmp_path: Path) -> None:
    sweep_alpha(tmp_path, {1: 64.0, 10: 69.0})
    assert line_of(tmp_path, "| best_alpha")[2:5] == ["2 of 6 values run", "–", "–"]
    missing = "- needs pre-training `co2/in100-r18-weight20`, then `in100_linear` (co2-2021)\n"
    assert missing in page(tmp_path, "stated.md")


def test_what_is_missing_is_named_with_its_recipe(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    text = page(tmp_path, "stated.md")
    assert "- needs pre-training `co2/in100-r18`, then `in100_linear` (co2-2021)\n" in text
    assert re.search(r"^- Figure 2\(a\), .*: degrades_from_alpha 20$", text, re.M)


def test_what_stands_against_a_number_is_a_recipe_and_a_task(subtests: pytest.Subtests) -> None:
    for statement, one in MEASURED:
        with subtests.test(statement=statement, one=one):
            assert isinstance(statement.values[one.value], int | float)
            assert set(one.recipes) <= set(RECIPES)
            tasks = {
                (reading_of(k)[0], task.protocol.partition("/")[0]) for k, task in TASKS.items()
            }
            assert not one.task or (one.task, one.protocol) in tasks
