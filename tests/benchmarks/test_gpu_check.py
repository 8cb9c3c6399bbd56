"""The page of GPU throughputs, failed measurements, and use in plans."""

import os
from functools import partial
from pathlib import Path

import cv2
import pytest
import torch

from benchmarks.gpu import evaluation, pretraining
from benchmarks.gpu.floor import count_views, floor_us
from benchmarks.gpu_check import Quantities, add_seconds, main, render, seconds_of
from pretrain.loop import Training, training_step
from transfer.frozen.network import WORKSPACE_MB, WORKSPACE_VARIABLE
from transfer.hours import measured_seconds


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]


def test_everything_but_steps_is_measured_on_a_cpu(tmp_path: Path) -> None:
    args = ["--device", "cpu", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path)]
    assert main([*args, "--only", "probe", "classifier", "one core"]) == 0
    page = (tmp_path / "runs" / "gpu_check.md").read_text()
    names = {row[0] for row in rows(page) if len(row) == 3}
    assert {"linear probe", "one core", "fine-tuning of classifier"} <= names
    assert not (tmp_path / "gpu_check.md").exists()  # a CPU's page is not a result


@pytest.mark.slow
def test_everything_is_measured_on_a_cpu(tmp_path: Path) -> None:
    assert main(["--device", "cpu", "--runs", str(tmp_path), "--results", str(tmp_path)]) == 0
    assert "failed" not in (tmp_path / "gpu_check.md").read_text()


def fail(*_: object) -> Quantities:
    raise RuntimeError("no kernel")


def workspace_limit(*_: object) -> Quantities:
    return {"limit": os.environ.get(WORKSPACE_VARIABLE, "none")}


def test_only_evaluations_limit_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(WORKSPACE_VARIABLE, raising=False)
    monkeypatch.setattr(pretraining, "STEPS", {"moco": workspace_limit})
    monkeypatch.setitem(evaluation.TRAININGS, "classifier", workspace_limit)
    args = ["--device", "cpu", "--runs", str(tmp_path), "--only", "classifier", "step of"]
    assert main(args) == 0
    page = rows((tmp_path / "gpu_check.md").read_text())
    assert ["step of moco", "limit", "none"] in page
    assert ["fine-tuning of classifier", "limit", WORKSPACE_MB] in page


def test_other_measurements_go_on_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evaluation.TRAININGS, "classifier", fail)
    args = ["--device", "cpu", "--runs", str(tmp_path), "--only", "classifier", "resnet18 in"]
    assert main(args) == 1
    page = (tmp_path / "gpu_check.md").read_text()
    assert ["fine-tuning of classifier", "failed", "RuntimeError: no kernel"] in rows(page)
    assert ["features of resnet18 in float32", "images/s"] in [row[:2] for row in rows(page)]


def end_process(*_: object) -> Quantities:
    os._exit(9)


def test_other_evaluations_go_on_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "FEATURES", {"resnet18": end_process})
    monkeypatch.setitem(evaluation.TRAININGS, "classifier", workspace_limit)
    args = ["--device", "cpu", "--runs", str(tmp_path), "--only", "classifier", "resnet18"]
    assert main(args) == 1
    page = rows((tmp_path / "gpu_check.md").read_text())
    assert ["features of resnet18", "failed"] in [row[:2] for row in page]
    assert ["fine-tuning of classifier", "limit", WORKSPACE_MB] in page


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--device", "cpu", "--only", "mocho"]])
def test_a_wrong_request_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(words) == 2


def test_measured_facts_become_the_seconds_of_plans() -> None:
    answers: dict[str, Quantities] = {
        "features of resnet50 in float32": {"images/s": 4.0, "s per image, forward r f": 0.25},
        "fine-tuning of classifier": {"failed": "out of memory"},
        "step of moco": {"images/s": 1.0},
    }
    assert seconds_of(answers) == {"forward r f": 0.25}


def test_seconds_have_the_keys_that_plans_look_up(tmp_path: Path) -> None:
    measured = evaluation.FEATURES["resnet18 in float32"](torch.device("cpu"), tmp_path)
    assert "s per image, forward resnet18 float32" in measured
    keys = {"s per image, decode", "s per image, decode crop", "s per image, kept crop"}
    assert evaluation.core_throughput(torch.device("cpu"), tmp_path).keys() == keys


def test_the_page_begins_with_each_method() -> None:
    fields: Quantities = {
        "images/s": 2000.0,
        "hours of the recipe on this device alone": 36.0,
        "workers needed": 2.5,
    }
    page = render("a GPU", {"step of moco": fields})
    assert ["moco", "2000", "", "", "", "2.5", "36"] in rows(page)


@pytest.mark.parametrize(
    ("tflops", "tb_per_s", "fused_ms", "unfused_ms"),
    [(798, 3.0, 38.6, 43.8), (790, 4.3, 28.9, 32.5)],
)
def test_floor_of_moco_is_the_one_derived_by_hand(
    tflops: float, tb_per_s: float, fused_ms: float, unfused_ms: float
) -> None:
    # 256 images of ResNet-50 on an H100 and an H200
    floor = partial(floor_us, "resnet50", "imagenet", 224, 1e12 * tflops, 1e12 * tb_per_s)
    fused = floor()
    assert 0.256 * sum(fused) == pytest.approx(fused_ms, rel=4e-3)
    assert 0.256 * sum(floor(unfused=True)) == pytest.approx(unfused_ms, rel=4e-3)
    assert sum(fused) / fused[0] == pytest.approx(1.354, abs=2e-3)


def test_views_with_and_without_gradient_are_counted(tmp_path: Path) -> None:
    job = pretraining.step_job("jcl/smoke", torch.device("cpu"), tmp_path, 16)
    training = Training(job)
    batch = job.feed.finish(job.feed.make(0))
    step = partial(training_step, job, training, training.method, batch)
    assert count_views(job, step) == (16, 32)  # a query and two keys of each image


def test_a_batch_of_one_core_leaves_opencv_its_threads(tmp_path: Path) -> None:
    job = pretraining.step_job("jcl/smoke", torch.device("cpu"), tmp_path, 16)
    before = cv2.getNumThreads()
    cv2.setNumThreads(2)
    pretraining.make_batch(job)
    try:
        assert cv2.getNumThreads() == 2
    finally:
        cv2.setNumThreads(before)


def test_colors_on_the_device_are_compiled_once_for_all_steps(tmp_path: Path) -> None:
    device = torch.device("cpu")
    # so many images that each operation changes at least two
    job = pretraining.step_job("moco/smoke", device, tmp_path, 64, "--colors-in", "device")
    host_batches = [job.feed.make(step) for step in range(4)]
    batches = [job.feed.finish(host_batch) for host_batch in host_batches]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with pretraining.compiled_color("eager"):
        for host_batch, batch in zip(host_batches, batches, strict=True):
            assert all(map(torch.equal, job.feed.finish(host_batch).views, batch.views))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_workers_are_restricted_to_some_cores(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    with pretraining.restricted_to(1):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
    too_many = pretraining.restricted_to(len(before) + 1)
    with pytest.raises(ValueError, match=f"{len(before) + 1} cores are needed"), too_many:
        pass


def test_kernels_of_batch_norm_are_named() -> None:
    assert set(pretraining.norm_kernels(torch.device("cpu"), Path()).values()) == {"Native"}


def test_seconds_of_another_gpu_replace_the_old_ones(tmp_path: Path) -> None:
    add_seconds(tmp_path, "GPU", {"crop": 0.25})
    add_seconds(tmp_path, "GPU", {"forward a b": 0.5})
    add_seconds(tmp_path, "GPU", {})
    assert measured_seconds(tmp_path).seconds == {"crop": 0.25, "forward a b": 0.5}
    add_seconds(tmp_path, "other", {"crop": 0.125})
    assert measured_seconds(tmp_path).seconds == {"crop": 0.125}


def test_a_missing_opencv_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.gpu_check.find_spec", lambda name: None)
    assert main(["--device", "cpu"]) == 2
    assert "pip install opencv-python-headless" in capsys.readouterr().err
