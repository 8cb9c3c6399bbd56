"""The check of GPUs: what becomes of tests that pass, fail, skip and hang, and of measurements."""

import json
from pathlib import Path

import pytest

import benchmarks.gpu_check
from benchmarks.gpu.measure import MEASUREMENTS
from benchmarks.gpu.page import Answer, Machine, Status, complaint, rates_of, render
from benchmarks.gpu.timing import Facts, floor_us
from benchmarks.gpu_check import main

TESTS = """
import time

import pytest

def test_right(request):
    request.node.user_properties += [("loss", 1e-7), ("loss: bound", 1e-6)]

def test_wrong():
    assert not "loss 2 above 1", "loss 2 above 1"

def test_absent():
    pytest.skip("one GPU")
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command on a CPU whose tests are those above, and which measures one thing."""
    file = tmp_path / "gpu" / "test_parts.py"
    file.parent.mkdir()
    file.write_text(TESTS)
    monkeypatch.setattr(benchmarks.gpu_check, "TESTS", tmp_path)
    for name in set(MEASUREMENTS) - {"rate of a linear probe"}:
        monkeypatch.delitem(MEASUREMENTS, name)
    place = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    return ["--device", "cpu", *place]


def test_every_check_has_its_end_the_page_tells_and_the_same_command_goes_on(
    words: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(words) == 1
    (record,) = tmp_path.rglob("gpu_check.json")
    answers = {one["check"]: one for one in json.loads(record.read_text())["answers"]}
    statuses = {"right": "passed", "wrong": "failed", "absent": "skipped"}
    statuses["rate of a linear probe"] = "measured"
    assert {name: one["status"] for name, one in answers.items()} == statuses
    assert answers["wrong"]["reason"] == "loss 2 above 1"
    assert answers["absent"]["reason"].endswith("one GPU")
    page = record.with_suffix(".md").read_text()
    cells = [[part.strip() for part in line.split("|")] for line in page.splitlines()]
    assert ["", "right", "loss", "1e-07", "1e-06", ""] in cells
    assert "**1 passed, 1 measured, 1 failed, 1 skipped**" in page
    assert not (tmp_path / "results").exists()  # the page of a CPU is no result
    capfd.readouterr()
    assert main([*words, "--minutes", "0.0001"]) == 1  # all is answered
    assert "test_right" not in capfd.readouterr().out
    assert record.with_suffix(".md").read_text() == page
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main([*words, "--device", "cuda"]) == 2


def test_a_test_that_hangs_is_ended_and_the_others_are_answered(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    text = f"import time\ndef test_deaf():\n    {deaf}\n"
    (tmp_path / "gpu" / "test_deaf.py").write_text(text)
    monkeypatch.setattr(benchmarks.gpu_check, "PATIENCE_S", 15.0)
    monkeypatch.setattr(benchmarks.gpu_check, "END_S", 1.0)
    monkeypatch.delitem(MEASUREMENTS, "rate of a linear probe")
    assert main([*words, "--minutes", "2"]) == 1
    (page,) = tmp_path.rglob("gpu_check.md")
    assert "tests of deaf: no answer within 15 s" in page.read_text()
    (record,) = tmp_path.rglob("gpu_check.json")
    assert {one["check"] for one in json.loads(record.read_text())["answers"]} >= {"right"}


INTERRUPTED = """
def test_first(request):
    request.session.shouldstop = "an error of CUDA"

def test_second():
    pass
"""


def test_what_an_error_of_cuda_or_another_torch_leaves_unanswered_is_asked_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(MEASUREMENTS, "rate of a linear probe")
    file = tmp_path / "gpu" / "test_parts.py"
    for _ in range(2):
        file.write_text(INTERRUPTED)
        assert main(words) == 1
        (page,) = tmp_path.rglob("gpu_check.md")
        assert "what follows in tests of parts" in page.read_text()
    file.write_text("def test_first():\n    pass\n")
    assert main(words) == 0
    file.write_text("def test_first():\n    assert False\n")
    assert main(words) == 0  # it is answered
    monkeypatch.setattr("torch.__version__", "9.9")
    assert main(words) == 1


@pytest.mark.slow
def test_everything_is_measured_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes where several are needed; the tests themselves are run beside this one."""
    monkeypatch.setattr(benchmarks.gpu_check, "TESTS", tmp_path)
    place = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main(["--device", "cpu", "--minutes", "80", *place]) == 0
    (record,) = tmp_path.rglob("gpu_check.json")
    content = json.loads(record.read_text())
    assert content["not_run"] == []
    measured = {one["check"] for one in content["answers"] if one["status"] == "measured"}
    assert measured == set(MEASUREMENTS)


MACHINE = Machine(device="", gpu="NVIDIA H200", software="", commit="abc", date="2026-11-22")


def answer(check: str, status: Status, facts: Facts) -> Answer:
    return Answer(check=check, group="rates", status=status, seconds=1.0, facts=facts)


def test_measured_facts_become_the_rates_of_plans() -> None:
    # microseconds of a view of ResNet-50 at 790 TFLOP/s and 4.3 TB/s, derived by hand for an H200
    assert floor_us("resnet50", 790e12, 4.3e12) == pytest.approx((83.4, 29.5), rel=2e-3)
    facts = {"seconds per iteration in float32": 1.5, "images per pass in float32": 16.0}
    measured: dict[str, Facts] = {
        "rate of features of resnet50 in float32": {"images/s": 3000.0},
        "rate of a linear probe": {"crops/s": 4500.0, "precision": "bfloat16"},
        "rate of coco_det": {**facts},
        "step of moco": {"images/s": 1.0},
    }
    answers = [answer(name, "measured", facts) for name, facts in measured.items()]
    rates = rates_of(MACHINE, answers)
    assert rates is not None
    assert (rates.gpu, rates.measured, rates.commit) == ("NVIDIA H200", "2026-11-22", "abc")
    assert rates.features == {"resnet50": {"float32": 3000.0}}
    assert rates.probe_crops == 4500.0
    assert rates.trainings == {"coco_det": {"float32": {"images": 16.0, "seconds": 1.5}}}
    assert rates_of(MACHINE, answers[-1:]) is None


def test_the_page_begins_with_each_method() -> None:
    facts: Facts = {"images/s": 2000.0, "hours of the recipe on this device alone": 36.0}
    facts["times the fused floor"] = 2.5
    answers = [answer(f"step of {method}", "measured", facts) for method in ("moco", "jcl")]
    answers += [answer(f"a step in float32: {method}", "passed", {}) for method in ("moco", "jcl")]
    answers.append(answer("a step in bfloat16: moco", "failed", {}))
    answers.append(answer("step of byol", "failed", facts))  # slow
    answers.append(answer("a step in float32: byol", "passed", {}))
    page = render(MACHINE, answers, []).partition("## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    assert ["moco", "2000", "2.5", "36", "wrong"] in rows
    assert ["jcl", "2000", "2.5", "36", "right"] in rows
    assert ["byol", "2000", "2.5", "36", "right, but see Failed"] in rows


def test_a_step_that_waits_or_crawls_has_failed() -> None:
    right: Facts = {"waits": 0, "times the fused floor": 2.5}
    assert complaint("step of moco", right) == complaint("rate of coco_det", {"waits": 9}) == ""
    assert "2 waits" in complaint("step of moco", right | {"waits": 2})
    assert complaint("step of lorac", right | {"waits": 1}) == ""
    memory: Facts = {"peak memory GB": 9.0, "peak memory GB at least, by the estimate": 9.5}
    assert "memory GB 9, less than the estimate of 9.5" in complaint("step of moco", right | memory)
    assert complaint("step of moco", right | memory | {"peak memory GB": 9.6}) == ""
    assert "3.2 times" in complaint("step of moco", right | {"times the fused floor": 3.2})
