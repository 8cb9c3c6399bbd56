"""Our numbers beside the published ones, and rows that are to be made."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages.published import transfer_tasks
from benchmarks.pages.records import UNTRAINED
from tests.synthetic_records import page, record
from transfer.backbone import random_backbone

LORAC = {"method": "lorac", "recipe": "lorac/in1k-r50", "epochs": 200.0, "data": "in1k"}


def test_the_same_pretraining_is_compared_with_the_paper(tmp_path: Path) -> None:
    record(tmp_path, 47.5, task=transfer_tasks()[0], protocol="lorac-2021/1", made_by=LORAC)
    text = page(tmp_path, "lorac_table2.md")
    lines = [[c.strip() for c in line.split("|")] for line in text.splitlines()]
    compared = next(line for line in lines if len(line) == 10 and line[1] == "→ mine")
    assert compared[2:8] == ["LORAC", "Aircraft", "47.50", "47.8", "-0.30", "pass"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recipe": "byol/in1k-r50"}, "no row of the table is of byol/in1k-r50"),
        ({"recipe": "lorac/in1k-r50-mine"}, "no row of the table is of lorac/in1k-r50-mine"),
        ({"epochs": 2.0}, "epochs 200, ours 2"),
        ({"data": "in1k (5000 images)"}, "data in1k, ours in1k (5000 images)"),
        ({"changed": {"batch_size": 8}}, "ours changed its recipe in batch_size"),
    ],
)
def test_another_pretraining_gets_no_verdict(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    record(
        tmp_path, 47.5, task=transfer_tasks()[0], protocol="lorac-2021/1", made_by=LORAC | changes
    )
    text = page(tmp_path, "lorac_table2.md")
    assert said in text
    assert "| verdict |" not in text


def test_a_recipe_of_moco_v2_is_not_held_against_moco_v1(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in1k-r50-v2", "epochs": 200, "data": "in1k"}
    record(tmp_path, 79.7, made_by=moco)
    text = page(tmp_path).split("## Against the paper")[1]
    assert re.search(r"→ mine \| MoCo v2 \(Chen.*\| 79.70 \| +85.0 \| -5.30 \| +fail", text)


def test_lorac_moco_row_is_compared_under_its_own_reading_of_the_probe(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in100-r18-v2", "epochs": 100, "data": "in100"}
    probe = {"task": "in100_linear", "protocol": "lorac-2021-moco/1", "arch": "resnet18"}
    record(tmp_path, 66.0, made_by=moco, **probe)
    text = page(tmp_path, "lorac_table5.md")
    assert re.search(r"→ mine \| MoCo-v2 +\| Top-1 +\| 66.00 \| +65.3 \| +\+0.70 \| +warn", text)


def test_moco_rows_of_lorac_table_1_are_compared_under_mocos_own_probe(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in1k-r50-v2", "epochs": 200, "data": "in1k"}
    record(tmp_path, 67.4, task="in1k_linear", protocol="moco-2020/1", made_by=moco)
    text = page(tmp_path, "lorac_table1.md")
    assert "## Protocol moco-2020: the paper's protocol for MoCo-v1, MoCo-v2, MoCo-v2+\n" in text
    assert re.search(r"→ mine \| MoCo-v2 +\| Top-1 +\| 67.40 \| +67.5 \| +-0.10 \| +pass", text)


def test_co2_on_moco_v1_is_compared_under_its_own_weight_decay(tmp_path: Path) -> None:
    co2 = {"method": "co2", "recipe": "co2/in1k-r50-v1", "epochs": 200, "data": "in1k"}
    few = {"task": "in1k_semi_1pct", "made_by": co2}
    record(tmp_path, 66.0, protocol="co2-2021-v1/1", metric="top5", **few)
    record(tmp_path, 60.0, protocol="co2-2021/1", metric="top5", **few)
    text = page(tmp_path, "co2_table2.md").split("## Against the paper")[1]
    assert re.search(r"\| 66.00 \| +66.2 \| +-0.20 \| +pass", text)
    assert "60.00" not in text


@pytest.mark.parametrize(
    ("heads", "arch", "row"),
    [
        (["invariant", "color"], "resnet50-heads2", "79.7"),
        (["invariant", "texture"], "resnet50-heads2", "80.3"),
        (["invariant"], "resnet50", "78.5"),
        (None, "resnet50-heads4", "82.2"),
    ],
)
def test_heads_of_loocpp_find_their_row_of_table_5(
    tmp_path: Path, heads: list[str] | None, arch: str, row: str
) -> None:
    recipe = "loocpp/in100-r50-color-rotation-texture"
    made_by: dict[str, Any] = {"method": "loocpp", "recipe": recipe, "epochs": 500}
    made_by |= {"data": "in100"} | ({"heads": heads} if heads else {})
    probe = {"task": "in100_linear", "protocol": "looc-2020/1", "arch": arch}
    record(tmp_path, 80.0, made_by=made_by, **probe)
    text = page(tmp_path, "looc_table5.md").split("## Against the paper")[1]
    assert re.search(rf"→ mine \| LooC\+\+ +\| IN-100 top-1 +\| 80.00 \| +{row} ", text)


def test_other_heads_are_no_row_of_table_5(tmp_path: Path) -> None:
    recipe = "loocpp/in100-r50-color-rotation-texture"
    made_by = {"method": "loocpp", "recipe": recipe, "epochs": 500, "data": "in100"}
    for number, heads in enumerate((["color"], ["invariant", "color", "texture"])):
        changes = {"backbone": f"mine{number}", "sha256": f"{number}" * 64}
        changes |= {"task": "in100_linear", "protocol": "looc-2020/1"}
        record(tmp_path, 80.0, made_by=made_by | {"heads": heads}, **changes)
        said = f"no row of the table is of {recipe} with heads {', '.join(heads)} alone"
        assert said in page(tmp_path, "looc_table5.md")


def test_what_nobody_pre_trained_is_named_with_its_recipe(tmp_path: Path) -> None:
    record(tmp_path, 47.5, task=transfer_tasks()[0], protocol="lorac-2021/1", made_by=LORAC)
    listed = page(tmp_path, "lorac_table2.md").split("## Missing rows")[1]
    assert "- MoCo-M: needs pre-training `moco_m/in1k-r50`\n" in listed
    assert "LORAC: needs" not in listed


def test_a_shorter_pre_training_does_not_make_a_papers_row(tmp_path: Path) -> None:
    short = LORAC | {"epochs": 2.0}
    record(tmp_path, 47.5, task=transfer_tasks()[0], protocol="lorac-2021/1", made_by=short)
    text = page(tmp_path, "lorac_table2.md")
    assert "- LORAC: needs pre-training `lorac/in1k-r50`\n" in text


@pytest.mark.parametrize("table", ["jcl_table2.md", "lorac_table4.md"])
def test_untrained_weights_are_judged_against_the_random_row(tmp_path: Path, table: str) -> None:
    coco: dict[str, Any] = {"task": "coco_det", "protocol": "jcl-2020/1"}
    record(tmp_path, 38.0, **coco)
    assert "- random: needs no pre-training, `--random`\n" in page(tmp_path, table)
    coco |= {"backbone": "random", "sha256": "b" * 64, "made_by": {"method": UNTRAINED}}
    record(tmp_path, 32.0, arch="resnet18", **coco)
    text = page(tmp_path, table)
    assert "the paper's random differs (network resnet50, ours resnet18)" in text
    record(tmp_path, 30.0, **coco)
    text = page(tmp_path, table)
    assert re.search(r"→ random \| random +\| AP\^bb +\| 30.00 \| +30.1 \| +-0.10 \| +pass", text)
    assert "- random: needs" not in text


def test_a_table_without_a_random_row_says_so(tmp_path: Path) -> None:
    record(tmp_path, 5.0, made_by={"method": UNTRAINED})
    assert "no row of the table is of a random initialization" in page(tmp_path)


def test_records_of_random_weights_are_recognized_by_what_the_suite_writes() -> None:
    backbone = random_backbone(arch="resnet18", stem="cifar", seed=0)
    assert backbone.made_by["method"] == UNTRAINED


def test_rows_that_nothing_here_makes_are_named(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    (line,) = re.findall(r"^- not implemented here: (.*)$", page(tmp_path), flags=re.MULTILINE)
    assert [name.split()[0] for name in line.split("), ")] == ["Rotation", "Jigsaw", "PIRL"]


def test_a_point_of_jcls_figure_is_to_be_made_until_it_is_run(tmp_path: Path) -> None:
    made_by = {"method": "jcl", "recipe": "jcl/in100-r18-keys7", "epochs": 100, "data": "in100"}
    probe = {"task": "in100_linear", "protocol": "jcl-2020/1", "arch": "resnet18"}
    record(tmp_path, 70.0, made_by=made_by, **probe)
    text = page(tmp_path, "jcl_imagenet100.md")
    assert "- Figure 2: needs pre-training `jcl/in100-r18-keys9`\n" in text
    assert "needs pre-training `jcl/in100-r18-keys7`" not in text
