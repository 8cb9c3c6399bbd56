"""A paper's table with our rows in it, from synthetic result files."""

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results.published import transfer_tasks
from tests.synthetic_records import blocks, failure, page, record, transfer_records
from transfer.record import UNTRAINED

COCO = {"task": "coco_det", "protocol": "jcl-2020/1", "engine": "torchvision"}


def test_a_detector_no_better_than_a_random_one_is_doubted(tmp_path: Path) -> None:
    for points, doubted in ((31.0, True), (33.0, True), (33.5, False)):  # the paper's has 30.0
        record(tmp_path, points, **COCO)
        assert ("weights may not be loaded" in page(tmp_path, "jcl_table2.md")) == doubted


def test_where_the_paper_has_no_random_row_ours_counts(tmp_path: Path) -> None:
    voc = {"task": "voc0712_det_c4", "protocol": "co2-2021/1"}
    for points, changes in ((34.0, {}), (33.8, {"backbone": "random", "sha256": "b" * 64})):
        made_by = {"made_by": {"method": UNTRAINED}} if changes else {}
        record(tmp_path, points, **voc, **changes, **made_by)
        doubted = "weights may not be loaded" in page(tmp_path, "co2_table3.md")
        assert doubted == bool(changes)


def test_missing_runs_differ_from_missing_papers_numbers(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    rows = blocks(page(tmp_path))[0]
    assert rows["→ mine"] == ["86.0", "not run", "not run", "not run", "not run"]
    assert rows["MoCo (He et al., 2020)"][0] == "–"
    # the best is bold only where it is surely ahead
    for score, output in ((88.5, "88.5"), (89.5, "**89.5**")):
        record(tmp_path, score)  # the paper's best is 88.0, two standard errors are about 1.2
        assert blocks(page(tmp_path))[0]["→ mine"][0] == output


def test_what_leaves_the_paper_stands_below_its_table(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    changed: list[tuple[dict[str, Any], str]] = [
        ({"schedule": "smoke", "hash": "short"}, "Smoke schedule"),
        ({"small": "generated"}, "Generated data"),
        ({"tolerated": 2}, "Incomplete data"),
        ({"hash": "other"}, "Altered protocol"),
        ({"protocol": "co2-2021-11point/1"}, "Protocol co2-2021-11point"),
    ]
    for number, (changes, heading) in enumerate(changed):
        with subtests.test(heading):
            record(tmp_path / str(number), 99.0, **changes)
            text = page(tmp_path / str(number))
            assert f"## {heading}: not comparable with the rows above" in text
            above, below = blocks(text)
            assert "→ mine" not in above
            assert below["→ mine"][0] == "99.0"


def test_tables_are_split_by_protocol_hash(
    tmp_path: Path,
) -> None:
    for backbone, digest in (("one", "x"), ("two", "x"), ("three", "y")):
        record(tmp_path, 50.0, backbone=backbone, hash=digest, schedule="smoke")
    rows = [set(block) for block in blocks(page(tmp_path))[1:]]
    assert sorted(rows, key=len) == [{"→ three"}, {"→ one", "→ two"}]
    record(tmp_path / "twins", 86.0, sha256="a" * 64)
    record(tmp_path / "twins", 80.0, sha256="b" * 64, seed=1)
    text = page(tmp_path / "twins")
    assert re.search(r"→ mine \(aaaaaaaa\) ¹ +\| +86.0 ", text)
    assert re.search(r"→ mine \(bbbbbbbb\) ² +\| +80.0 ", text)


def test_the_average_of_twelve_sets_is_unweighted_and_needs_all(tmp_path: Path) -> None:
    transfer_records(tmp_path / "all")  # 50, 51, ... 61
    assert blocks(page(tmp_path / "all", "lorac_table2.md"))[0]["→ mine"][-1] == "55.5"
    transfer_records(tmp_path / "some", transfer_tasks()[:-1])
    failure(tmp_path / "some", transfer_tasks()[-1], "DataError: no folder sun397")
    text = page(tmp_path / "some", "lorac_table2.md")
    assert blocks(text)[0]["→ mine"][-2:] == ["failed ¹", "– (11 of 12)"]
    assert "1. failed: DataError: no folder sun397" in text


def test_uniclr_table_3_takes_our_row_into_the_block_of_its_data_set(tmp_path: Path) -> None:
    record(tmp_path, 66.0, task="cifar100_linear", protocol="uniclr-2022/1", arch="resnet18")
    lines = [line for line in page(tmp_path, "uniclr_table3.md").splitlines() if "|" in line]
    location = next(i for i, line in enumerate(lines) if "*ImageNet-100*" in line)
    assert "→ mine" in lines[location - 1]
    assert "66.00" in lines[location - 1]


def test_learning_rate_at_the_edge_of_its_grid_is_noted(
    tmp_path: Path,
) -> None:
    cell = {"task": "flowers102_fewshot", "protocol": "looc-2020/1"}
    record(tmp_path, 70.0, details={"interval95": {"acc_5shot": 0.44}}, **cell)
    text = page(tmp_path, "looc_table4.md")
    assert "70.0 ± 0.4" in blocks(text)[0]["→ mine"]
    assert "95 % interval over its trials" in text
    for seed, at_edge in enumerate((False, True)):
        record(tmp_path, 86.0, seed=seed, details={"at_grid_edge": at_edge})
    assert "; chosen learning rate at the edge of the grid (seed 1)" in page(tmp_path)
    record(tmp_path, 86.0, seed=1)
    assert "edge of the grid" not in page(tmp_path)
