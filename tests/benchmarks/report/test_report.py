"""The HTML report, read without a browser."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.report import main, update_report
from benchmarks.report_parts.compare import Compared, compared
from benchmarks.report_parts.page import addresses_of, explanations_of, report_page
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from benchmarks.words import count_tasks
from tests.benchmarks.report.complete_records import (
    ENDS_SCRIPT,
    HOSTILE,
    LORAC,
    backbone,
    complete,
    usual,
)
from transfer.outcomes import per_image
from transfer.record import UNTRAINED

TASK = transfer_tasks()[0]


def test_text_of_files_never_becomes_tags(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; from benchmarks.report import main; main(sys.argv[1:]);"
        "sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "--results", str(usual(tmp_path))]
    assert subprocess.run(command, capture_output=True).returncode == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert HOSTILE not in page
    assert ENDS_SCRIPT.rstrip("\u2028") not in page
    script = page.partition('id="explanations">')[2]
    assert "\\u2028" in script
    assert "\u2028" not in script


def test_a_published_number_has_its_verdict_in_a_row(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK, details={"num_test": 3333})
    page = report_page(read_contents(tmp_path), [])
    row = page.partition("LORAC, Table II: LORAC, Aircraft")[2].partition("</tr>")[0]
    assert ">47.50</a>" in row
    assert ">−0.30</td>" in row  # the paper prints 47.8
    assert "? inconclusive" in row


def test_a_papers_table_without_a_row_of_ours_is_a_link(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK)
    page = report_page(read_contents(tmp_path), [])
    tables = page.partition('<section id="tables">')[2].partition("</section>")[0]
    assert tables.count("<details") == 1
    assert '<span class="name">LORAC, Table II</span>' in tables
    assert 'LORAC: <a href="../tables/lorac_table1.md" title="Linear classification' in tables


def test_rows_of_ours_that_were_not_run_are_left_out(tmp_path: Path) -> None:
    names = {"name": "uniclr-2022/1", "hash": "paper", "paper_hash": "paper"}
    complete(tmp_path, "mine", "cifar10_linear", protocol={**names, "fields": {}})
    page = report_page(read_contents(tmp_path), [])
    tables = page.partition('<section id="tables">')[2].partition("</section>")[0]
    assert '<span class="count">1 row with our results</span>' in tables
    assert tables.count("→ mine") == 1


def results_of_two(results: Path) -> None:
    """Write results of a checkpoint that is better on one task only."""
    rng = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    for name, shares in (("good", (0.8, 0.5)), ("random", (0.4, 0.5))):
        origin = {"method": UNTRAINED} if name == "random" else {}
        for task, share in zip(transfer_tasks()[:2], shares, strict=True):
            right = rng.random(1000) < share
            entry, metrics = backbone(name, made_by=origin), {"mean_per_class": 100 * right.mean()}
            details = per_image(right, labels)
            complete(results, name, task, backbone=entry, metrics=metrics, details=details)


def compared_of(results: Path) -> Compared:
    contents = read_contents(results)
    comparison = compared(contents.numbers, lambda files: "")
    assert comparison is not None
    return comparison


def test_the_first_sentence_says_which_is_better_after_correction(tmp_path: Path) -> None:
    results_of_two(tmp_path)
    comparison = compared_of(tmp_path)
    message = (
        "good is significantly better than random on 1 of 2 tasks, worse on 0, inconclusive on 1."
    )
    assert comparison.sentences == [message]
    page = report_page(read_contents(tmp_path), [])
    assert message in page
    assert "these sentences compare files, not yet methods" in page
    assert comparison.tasks[0].key == TASK
    assert [*dict.fromkeys(comparison.tasks[0].tests)] == ["paired on the same 1,000 images"]
    complete(tmp_path, "random", transfer_tasks()[2], schedule="short")
    assert [task.key for task in compared_of(tmp_path).tasks] == list(transfer_tasks()[:2])


def test_checkpoints_of_different_networks_are_compared(
    tmp_path: Path,
) -> None:
    count = "train (1281167 images, fingerprint 0a)"
    small = {"method": "moco", "recipe": "moco/in100-r18", "data": "photographs (900 images)"}
    for entry in (
        backbone("mine", made_by={"method": "jcl", "recipe": "jcl/in1k-r50", "data": count}),
        backbone("moco", "resnet18", made_by=small),
        backbone("foreign", "timm:vit_small.dino", stem="", num_parameters=21_665_664),
        backbone("random-resnet18", "resnet18", made_by={"method": UNTRAINED}),
        backbone("random", made_by={"method": UNTRAINED}),
    ):
        metrics = {"mean_per_class": {"mine": 60.0, "moco": 50.0}.get(entry["name"], 40.0)}
        details = {"num_test": 3333}
        complete(tmp_path, entry["name"], TASK, backbone=entry, metrics=metrics, details=details)
    comparison = compared_of(tmp_path)
    assert comparison.content["names"] == ["foreign", "mine", "moco", "random", "random-resnet18"]
    assert [checkpoint.description for checkpoint in comparison.checkpoints[:3]] == [
        "timm:vit_small, 21.7 M parameters, unknown pre-training data",
        "resnet50, imagenet stem, in1k",
        "resnet18, imagenet stem, photographs (900 images)",
    ]
    assert comparison.pairs[:3] == [(0, 1), (0, 2), (1, 2)]
    assert comparison.sentences[1].startswith("foreign is significantly worse than moco on 1 of 1")
    assert comparison.sentences[3:] == [
        "mine is significantly better than random on 1 of 1 task, worse on 0, inconclusive on 0.",
        "moco is significantly better than random-resnet18 on 1 of 1 task, worse on 0, "
        "inconclusive on 0.",
    ]
    assert comparison.content["sentences"][1][2] == (
        "mine is significantly better than moco on 1 of 1 task, worse on 0, inconclusive on 0; "
        "their networks differ (resnet50, imagenet stem; resnet18, imagenet stem); so do their "
        "pre-training data (in1k; photographs (900 images))."
    )


def test_a_checkpoint_that_beats_random_weights_nowhere_is_called_so(tmp_path: Path) -> None:
    for name, made_by in (("mine", {}), ("random", {"method": UNTRAINED})):
        for task in transfer_tasks()[:2]:
            entry, metrics = backbone(name, made_by=made_by), {"mean_per_class": 40.0}
            complete(tmp_path, name, task, backbone=entry, metrics=metrics)
    (sentence,) = compared_of(tmp_path).sentences
    start = "mine is not better than random weights: significantly better on 0 of "
    assert sentence.startswith(start)


def test_only_input_sizes_may_differ(tmp_path: Path) -> None:
    for name, px, margin in (("a", 32, 0), ("b", 224, 0), ("c", 32, 8)):
        fields = {"crop_px": px, "margin_px": margin}
        names = {"name": "lorac-2021/1", "hash": f"{px} {margin}", "paper_hash": "32 0"}
        protocol = {**names, "fields": fields}
        complete(tmp_path, name, TASK, backbone=backbone(name), protocol=protocol)
    comparison = compared_of(tmp_path)
    assert comparison.content["names"] == ["a", "b"]
    assert comparison.content["tasks"][0]["sizes"] == [32, 224]
    assert comparison.conditions == "Paper schedule, full data"


def test_a_recipe_that_departs_is_described_once(tmp_path: Path) -> None:
    recipe = "recipe: iterations 12 instead of 90000, batch_size 4 instead of 16"
    names = {"name": "jcl-2020/1", "hash": "tiny", "paper_hash": "paper"}
    changes: dict[str, Any] = {"protocol": {**names, "fields": {}}, "departures": [recipe]}
    metrics = {"AP": 12.0, "AP50": 20.0, "AP75": 10.0}
    output: dict[str, Any] = {"metrics": metrics, "primary_metric": "AP"}
    complete(tmp_path, "mine", "coco_det", schedule="smoke", **changes, **output)
    page = report_page(read_contents(tmp_path), [])
    tables = page.partition('<section id="tables">')[2].partition("</section>")[0]
    assert tables.count(recipe) == 1
    assert "recipe: as in JCL, Table 2" in tables.partition("LORAC, Table IV")[2]


def test_folders_with_the_same_images_have_one_name(tmp_path: Path) -> None:
    for name, folder, fingerprint in (
        ("a", "c5k", "0a"),
        ("b", "c5k", "0a"),
        ("c", "FIVE", "0a"),
        ("d", "rooms", "0b"),
    ):
        data = f"{folder} (5000 images, fingerprint {fingerprint})"
        complete(tmp_path, name, TASK, backbone=backbone(name, made_by=LORAC | {"data": data}))
    fields = [checkpoint.data for checkpoint in compared_of(tmp_path).checkpoints]
    assert fields == ["c5k (5000 images)"] * 3 + ["rooms (5000 images)"]
    assert "FIVE (5000 images)" not in report_page(read_contents(tmp_path), [])


def test_the_page_counts_tasks_and_readings_alike(tmp_path: Path) -> None:
    for reading in ("co2", "jcl"):
        request = {"task": f"in1k_linear@{reading}", "backbone": [], "options": [], "input": {}}
        names = {"name": f"{reading}-2021/1", "hash": "paper", "paper_hash": "paper"}
        protocol = {**names, "fields": {}}
        complete(tmp_path, "mine", "in1k_linear", request=request, protocol=protocol)
    assert "2 results on 2 protocol variants of 1 task" in report_page(read_contents(tmp_path), [])


def test_readings_are_counted_as_such() -> None:
    assert count_tasks(["a", "b"]) == "2 tasks"
    assert count_tasks(["a@x", "a@y", "b"]) == "3 protocol variants of 2 tasks"


def test_a_number_links_to_the_explanations_of_its_records(tmp_path: Path) -> None:
    for seed in (0, 1):
        complete(tmp_path, "mine", TASK, seed)
    contents = read_contents(tmp_path)
    addresses = [*addresses_of(contents.results.succeeded).values()]
    assert addresses == [f"mine/{TASK}", f"mine/{TASK}.paper.seed1"]
    page = report_page(contents, [])
    assert f'href="#{",".join(addresses)}"' in page
    assert str(tmp_path) not in page


def test_explanations_name_no_absolute_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["--ckpt", "/home/me/mine.pt"]
    inputs: dict[str, Any] = {"task": TASK, "backbone": args, "options": [], "input": {}}
    complete(Path("out"), "without", TASK, 0, request=inputs)
    for folder, shown in ((Path("out"), "out"), (Path("out").absolute(), "RESULTS")):
        contents = read_contents(folder)
        text = str(explanations_of(contents, addresses_of(contents.results.succeeded)))
        assert f"{shown}/records/without/" in text
        assert str(tmp_path) not in text
        assert "/home/me" not in text


def test_empty_folder_gives_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No results yet" in report_page(read_contents(tmp_path), [])
    assert main(["--results", str(tmp_path / "absent")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_failed_report_is_one_sentence_before_the_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("the dog\nate it")
    monkeypatch.setattr("benchmarks.report.report_page", Mock(side_effect=error))
    assert not update_report(tmp_path)
    line, *traceback = capsys.readouterr().err.splitlines()
    assert "the dog" in line
    assert "records are safe" in line
    assert traceback
