"""The check of GPUs on commands that answer, fail, die and hang."""

import json
from pathlib import Path

import pytest

import benchmarks.gpu.checks
import benchmarks.gpu_check
from benchmarks.gpu.checks import Answer, Kept, Status, known_checks
from benchmarks.gpu.page import Machine
from benchmarks.gpu_check import keep_rates, main

FAKE = "tests.benchmarks.gpu.fake_checks"
EXPECTED = {
    "sound": "passed",
    "wrong": "failed",
    "measured": "measured",
    "absent": "skipped",
    "deadly": "failed",
    "after death": "passed",
    "useless": "failed",
    "late": "failed",
    "after late": "passed",
}


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(benchmarks.gpu_check, "COMMANDS", (FAKE,))
    monkeypatch.setattr(benchmarks.gpu.checks, "MIN_PATIENCE_S", 1.0)
    monkeypatch.setattr(benchmarks.gpu.checks, "START_S", 20.0)
    place = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    return ["--device", "cpu", *place]


def test_every_check_has_its_end_and_the_page_tells(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    (record,) = tmp_path.rglob("gpu_check.json")
    answers = json.loads(record.read_text())["answers"]
    assert {answer["check"]: answer["status"] for answer in answers} == EXPECTED
    reasons = {answer["check"]: answer["reason"] for answer in answers}
    assert reasons["deadly"] == "ended with 4: out of luck"
    assert reasons["late"] == "no answer within 1 s" or "21 s" in reasons["late"]
    page = record.with_suffix(".md").read_text()
    assert "3 passed, 1 measured, 4 failed, 1 skipped" in page
    assert "- group: absent: needs CUDA" in page
    assert "images per s" in page
    assert "123.5" in page
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith("4 of 9 failed; ")
    assert "skipped   group: absent  0.5 s  needs CUDA" in out[4]
    assert not (tmp_path / "results").exists()  # the page of a CPU is no result


def test_the_same_command_goes_on(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(words)
    (path,) = tmp_path.rglob("answers.jsonl")
    lines = path.read_text().splitlines()
    answers = [place for place, line in enumerate(lines) if line]
    path.write_text("\n".join(lines[: answers[3]]) + "\n" + lines[answers[3]][:20])  # cut short
    capsys.readouterr()
    main(words)
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("9 checks, 3 answered before")
    assert len(out) == 1 + 6 + 1
    main(words)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert len(Kept(path, "another commit").read()) == 0


def test_what_the_time_cuts_off_is_said(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--minutes", "0.0001"]) == 1
    assert "9 not run: the same command goes on" in capsys.readouterr().out
    (page,) = tmp_path.rglob("gpu_check.md")
    assert "## Not run" in page.read_text()


def test_a_command_that_cannot_list_is_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks.gpu_check, "COMMANDS", ("tests.no_such_module",))
    assert main(words) == 1
    assert "error: python -m tests.no_such_module --list: " in capsys.readouterr().err


def test_gpus_that_are_absent_are_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main([*words, "--device", "cuda"]) == 2
    assert "no CUDA device; use --device cpu" in capsys.readouterr().err


@pytest.mark.slow
def test_all_real_checks_pass_on_a_cpu_or_say_why_they_cannot(tmp_path: Path) -> None:
    """Two processes where several are needed; what measures has small settings there."""
    place = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["--device", "cpu", "--minutes", "80", *place]) == 0
    (record,) = tmp_path.rglob("gpu_check.json")
    content = json.loads(record.read_text())
    assert content["not_run"] == []
    assert len(content["answers"]) == len(known_checks("cpu"))
    for answer in content["answers"]:
        assert answer["status"] in ("passed", "measured", "skipped"), answer
        assert (answer["status"] == "skipped") == bool(answer["reason"]), answer


def test_measured_rates_are_kept_for_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(check: str, status: Status, facts: dict[str, float]) -> Answer:
        return Answer(command=FAKE, check=check, group="g", status=status, seconds=1.0, facts=facts)

    machine = Machine(device="2 x A", gpu="A", software="", commit="c", date="2026-11-22")
    crops = answer("rate of a linear probe", "measured", {"crops/s": 1000.0})
    failed = answer("rate of features of resnet50 in float32", "failed", {})
    keep_rates(tmp_path, machine, [crops, failed])
    assert "plans take their GPU hours from" in capsys.readouterr().out
    (path,) = (tmp_path / "rates").glob("*.json")
    assert json.loads(path.read_text())["probe_crops"] == 1000.0
    keep_rates(tmp_path, machine, [failed])
    assert capsys.readouterr().out == ""
