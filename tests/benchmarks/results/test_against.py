"""Our numbers next to published ones, and missing rows."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from benchmarks.results.verdicts import verdict_words
from tests.benchmarks.report.complete_records import LORAC
from tests.synthetic_records import blocks, page, record
from transfer.record import UNTRAINED


def test_only_equal_pretraining_gets_a_verdict(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "| → mine | LORAC | Aircraft | 47.50 | 47.8 | -0.30 | [-2.8, +2.2] | inconclusive |"),
        ({"recipe": "byol/in1k-r50"}, "the table has no row of byol/in1k-r50"),
        ({"recipe": "byol/in1k-r50", "heads": ["color"]}, "byol/in1k-r50 with heads color alone"),
        ({"epochs": 2.0}, "epochs 200, ours 2"),
        ({"data": "in1k (5000 images)"}, "data in1k, ours in1k (5000 images)"),
        ({"changed": {"batch_size": 8}}, "ours changed its recipe in batch_size"),
    ]
    for changes, message in cases:
        with subtests.test(changes=changes):
            aircraft = {"task": transfer_tasks()[0], "protocol": "lorac-2021/1"}
            record(tmp_path, 47.5, made_by=LORAC | changes, **aircraft)
            text = re.sub(" +", " ", page(tmp_path, "lorac_table2.md"))
            assert message in text
            assert ("| verdict |" in text) == (not changes)
            assert ("- LORAC: needs pre-training `lorac/in1k-r50`" in text) == bool(changes)


def test_a_row_is_compared_under_the_protocol_that_the_paper_used_for_it(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in1k-r50-v2", "epochs": 200, "data": "in1k"}
    record(tmp_path, 67.4, task="in1k_linear", protocol="moco-2020/1", made_by=moco)
    text = page(tmp_path, "lorac_table1.md")
    assert "## Protocol moco-2020: the paper's protocol for MoCo-v1, MoCo-v2, MoCo-v2+\n" in text
    assert re.search(
        r"→ mine \| MoCo-v2 +\| Top-1 +\| 67.40 \| +67.5 \| +-0.10 \| .* reproduced",
        text,
    )
    (verdicts,) = verdict_words(read_contents(tmp_path).pairs).values()
    of_lorac = verdicts.partition("; ")[0]
    assert re.fullmatch(r"reproduced \[-0\.\d, \+0\.\d\] \(.*\)", of_lorac)
    # and CO2 on MoCo v1 under its own weight decay
    co2 = {"method": "co2", "recipe": "co2/in1k-r50-v1", "epochs": 200, "data": "in1k"}
    few = {"task": "in1k_semi_1pct", "made_by": co2}
    record(tmp_path / "co2", 66.0, protocol="co2-2021-v1/1", metric="top5", **few)
    record(tmp_path / "co2", 60.0, protocol="co2-2021/1", metric="top5", **few)
    above, text = page(tmp_path / "co2", "co2_table2.md").split("## Differences from the paper")
    assert "## Protocol co2-2021 instead of co2-2021-v1: not comparable" in above
    assert re.search(r"\| 66.00 \| +66.2 \| +-0.20 \| .* inconclusive", text)
    assert "60.00" not in text


def test_loocs_all_is_compared_with_the_mean_that_it_fits(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in100-r50", "epochs": 500.0, "data": "in100"}
    for metric, score, digits in (("all19_top1", 48.2, "a"), ("all_top1", 46.6, "b")):
        cell = {"backbone": metric, "sha256": digits * 64, "made_by": moco, "metric": metric}
        record(tmp_path, score, task="imagenet_c100_eval", protocol="looc-2020/1", **cell)
    text = page(tmp_path, "looc_table3.md")
    output, against = blocks(text)
    assert "48.2" in output["→ all19_top1"][8]
    assert "46.6" in output["→ all_top1"][9]
    judged = ["48.20", "48.2", "+0.00", "[-2.1, +2.1]", "inconclusive"]
    assert against["→ all19_top1"][1:] == ["IN-C-100 All", *judged]
    assert "→ all_top1" not in against


def test_untrained_weights_are_judged_against_the_random_row(tmp_path: Path) -> None:
    table = "jcl_table2.md"
    coco: dict[str, Any] = {"task": "coco_det", "protocol": "jcl-2020/1"}
    record(tmp_path, 38.0, **coco)
    assert "- random: needs no pre-training, `--random`\n" in page(tmp_path, table)
    coco |= {"backbone": "random", "sha256": "b" * 64, "made_by": {"method": UNTRAINED}}
    record(tmp_path, 32.0, arch="resnet18", **coco)
    text = page(tmp_path, table)
    assert "the paper's random differs (network resnet50, ours resnet18)" in text
    record(tmp_path, 30.0, **coco)
    text = page(tmp_path, table)
    assert re.search(
        r"→ random \| random +\| AP\^bb +\| 30.00 \| +30.1 \| +-0.10 \| .* reproduced", text
    )
    assert "- random: needs" not in text
