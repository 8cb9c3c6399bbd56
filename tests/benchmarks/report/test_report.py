"""The HTML page without a browser: what it holds, and how its command fails."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from benchmarks.report import main, update_report
from benchmarks.report_parts.compare import Group, comparisons
from benchmarks.report_parts.page import Explanations, report_page
from benchmarks.results.contents import read_contents
from benchmarks.results.published import UNTRAINED, transfer_tasks
from tests.benchmarks.report.complete_records import ENDS_SCRIPT, HOSTILE, backbone, complete, usual
from transfer.outcomes import per_image

TASK = transfer_tasks()[0]


def test_words_of_files_never_become_tags_and_the_command_imports_no_torch(
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
    page = report_page(read_contents(tmp_path))
    row = page.partition("LORAC, Table II: LORAC, Aircraft")[2].partition("</tr>")[0]
    assert ">47.50</a>" in row
    assert ">−0.30</td>" in row  # the paper prints 47.8
    assert "? undecided" in row


def results_of_two(results: Path) -> None:
    """A checkpoint that is better on one task, and as good on another."""
    rng = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    for name, shares in (("good", (0.8, 0.5)), ("random", (0.4, 0.5))):
        origin = {"method": UNTRAINED} if name == "random" else {}
        for task, share in zip(transfer_tasks()[:2], shares, strict=True):
            right = rng.random(1000) < share
            entry, metrics = backbone(name, made_by=origin), {"mean_per_class": 100 * right.mean()}
            details = per_image(right, labels)
            complete(results, name, task, backbone=entry, metrics=metrics, details=details)


def groups_of(results: Path) -> list[Group]:
    contents = read_contents(results)
    return comparisons(contents.numbers, Explanations(contents).address)


def test_the_first_sentence_says_which_is_better_and_other_conditions_are_other_experiments(
    tmp_path: Path,
) -> None:
    results_of_two(tmp_path)
    (group,) = groups_of(tmp_path)
    said = "good is surely better than random on 1 of 2 tasks, worse on 0, undecided on 1."
    assert group.sentences == [said]
    assert said in report_page(read_contents(tmp_path))
    assert group.tasks[0].key == TASK
    assert [*dict.fromkeys(group.tasks[0].tests)] == ["paired on the same 1,000 images"]
    complete(tmp_path, "other", TASK, backbone=backbone("other", "resnet18"))
    complete(tmp_path, "random", transfer_tasks()[2], schedule="short")
    (group,) = groups_of(tmp_path)
    assert group.names == ["good", "random"]
    assert [task.key for task in group.tasks] == list(transfer_tasks()[:2])


def names_of(results: Path) -> dict[str, tuple[str, ...]]:
    groups = groups_of(results)
    return {one.conditions.partition("; Paper")[0]: tuple(one.names) for one in groups}


def test_own_declared_and_unknown_files_of_one_data_set_and_timms_tags_are_compared(
    tmp_path: Path,
) -> None:
    count = "train (1281167 images, fingerprint 0a)"
    others = "photographs (900 images)"
    for name, made_by in (
        ("own", {"method": "jcl", "recipe": "jcl/in1k-r50", "data": count}),
        ("declared", {"method": "moco", "recipe": "moco/in1k-r50-v2", "data": "in1k"}),
        ("foreign", {}),
        ("of-others", {"method": "jcl", "recipe": "jcl/in1k-r50", "data": others}),
        ("random", {"method": UNTRAINED}),
    ):
        complete(tmp_path, name, TASK, backbone=backbone(name, made_by=made_by))
    network = "resnet50, imagenet stem; pre-trained on"
    assert names_of(tmp_path) == {
        f"{network} in1k or unknown data": ("declared", "foreign", "own", "random"),
        f"{network} {others} or unknown data": ("foreign", "of-others", "random"),
    }
    for tag in ("dino", "augreg"):
        of_timm = backbone(tag, f"timm:vit_small.{tag}", stem="")
        complete(tmp_path / "timm", tag, TASK, backbone=of_timm)
    assert names_of(tmp_path / "timm") == {"timm:vit_small": ("augreg", "dino")}


def test_a_number_has_an_address_and_no_page_tells_a_folder(tmp_path: Path) -> None:
    for seed in (0, 1):
        complete(tmp_path, "mine", TASK, seed)
    details = Explanations(read_contents(tmp_path))
    first, second = (one["address"] for one in details.records)
    assert first == f"mine/{TASK}"
    assert second == f"mine/{TASK}.paper.seed1"
    assert details.address(details.addresses) == f"#{first},{second}"
    assert str(tmp_path) not in report_page(read_contents(tmp_path))


def test_a_short_folder_name_is_hidden_as_a_path_and_not_within_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--ckpt", "/home/me/mine.pt"]
    given: dict[str, Any] = {"task": TASK, "backbone": words, "options": [], "input": {}}
    complete(Path("out"), "without", TASK, 0, request=given)
    for folder in (Path("out"), Path("out").absolute()):
        text = str(Explanations(read_contents(folder)).content)
        assert "without" in text
        assert "RESULTS/records/without/" in text
        assert str(tmp_path) not in text
        assert "/home/me" not in text


def test_an_empty_folder_gives_a_page_and_an_absent_one_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No results yet" in report_page(read_contents(tmp_path))
    assert main(["--results", str(tmp_path / "absent")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_failed_report_is_one_sentence_before_any_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, words in (
        (ModuleNotFoundError("no module", name="jinja2"), "-m pip install jinja2"),
        (RuntimeError("the dog\nate it"), "the dog"),
    ):
        monkeypatch.setattr("benchmarks.report.report_page", Mock(side_effect=error))
        assert not update_report(tmp_path)
        line, *traceback = capsys.readouterr().err.splitlines()
        assert words in line
        assert "records are safe" in line
        assert bool(traceback) == isinstance(error, RuntimeError)
