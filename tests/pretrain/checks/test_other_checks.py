"""Checks of views, of resumed runs and of waits on a CPU: mistakes fail, and what is left out."""

import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import pretrain.loop
from pretrain.checks import resume, views, waits
from pretrain.checks.catalog import COMPILED, LEARNING
from pretrain.checks.compilation import compare_compiled, compiled
from pretrain.checks.place import Place, full_float32
from pretrain.checks.resume import StopAfterSteps, resumed
from pretrain.checks.waits import (
    WAITS,
    WAITS_OF_METRICS,
    counted_waits,
    forbidden_waits,
    judged_waits,
    without_waits,
)
from pretrain.compilation import compile_networks
from pretrain.data.feed import Batch, Feed
from pretrain.loop import Job
from tests.fake_cuda.budget import load_budget


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(device=torch.device("cpu"), folder=tmp_path)


@pytest.mark.parametrize("check", [views.views_from_memory, views.views_from_files])
def test_views_of_one_device_are_equal(
    check: Callable[[Place], object], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SETTINGS", {"views": ("simclr/smoke", "--batch-size", "2")})
    outcome = check(place)
    assert outcome.status == "passed"  # type: ignore[attr-defined]
    assert outcome.facts["views"] == 0  # type: ignore[attr-defined]


def test_a_view_that_is_a_tenth_of_a_level_off_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SETTINGS", {"views": ("simclr/smoke", "--batch-size", "2")})
    make, number = views.two_batches, iter(range(2))

    def made(feed: Feed, place: Place) -> list[Batch]:
        batches = make(feed, place)
        if next(number) == 0:
            batches[1].views[1][0, 2, 3, 4] += 0.1 / 255 / feed.recipe.std[2]
        return batches

    monkeypatch.setattr(views, "two_batches", made)
    outcome = views.views_from_memory(place)
    assert outcome.status == "failed"
    assert outcome.facts["views"] == pytest.approx(0.1, rel=1e-2)


def test_a_request_to_stop_comes_after_its_steps() -> None:
    stop, device = StopAfterSteps(2), torch.device("cpu")
    assert [stop.on_any_process(device) for _ in range(3)] == [False, True, False]


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_never_stopped(place: Place) -> None:
    assert resumed(place, "simsiam/smoke").status == "passed"


@pytest.mark.slow
def test_a_run_that_resumes_with_another_weight_fails(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, starts = resume.start, iter(range(3))

    def start(*things: object) -> Job:
        job = right(*things)  # type: ignore[arg-type]
        # other views after the checkpoint, as if the run had started its epoch again
        other = replace(job.feed.plan, seed=1)
        return job if next(starts) < 2 else replace(job, feed=replace(job.feed, plan=other))

    monkeypatch.setattr(resume, "start", start)
    assert resumed(place, "simsiam/smoke").status == "failed"


def test_what_needs_a_gpu_is_left_out_aloud(place: Place) -> None:
    for outcome in (without_waits(place, "moco"), compiled(place, COMPILED[0])):
        assert outcome.status == "skipped"
        assert outcome.reason.startswith("needs CUDA: ")


@pytest.mark.slow
def test_a_compiled_network_is_compared_with_the_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for_cpu = partial(compile_networks, backend="aot_eager")
    monkeypatch.setattr(pretrain.loop, "compile_networks", for_cpu)
    outcome = compare_compiled(place, "simsiam")
    assert outcome.status == "passed", outcome.reason
    assert float(outcome.facts["graphs"]) > 0


def test_methods_that_wait_are_known() -> None:
    assert (WAITS | WAITS_OF_METRICS).keys() <= set(LEARNING)
    assert judged_waits("lorac", {False: 1, True: 1}).status == "passed"
    assert judged_waits("lorac", {False: 1, True: 2}).status == "failed"
    assert judged_waits("moco_m", {False: 0, True: 1}).status == "passed"
    assert judged_waits("moco_m", {False: 1, True: 1}).status == "failed"
    assert judged_waits("simclr", {False: 0, True: 0}).facts["allowed_in_step"] == 0


def test_a_gpu_may_wait_as_often_as_a_pretended_one() -> None:
    budget: Counter[str] = Counter()
    for entry in load_budget()["step of pre-training"]:
        budget.update(entry.get("waits", {}))
    assert {name: number for name, (number, _) in WAITS.items()} == budget


@pytest.fixture
def sync_modes(monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """Record the modes of the debugger of waits, which needs a GPU."""
    modes: list[int | str] = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    return modes


def test_waits_are_counted_by_torchs_warnings(sync_modes: list[int | str]) -> None:
    with counted_waits() as places:
        assert sync_modes[-1] == "warn"
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation (Triggered ...)", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
    assert len(places) == 2
    assert places[0].startswith(__file__)
    assert sync_modes == [0, "warn", 0]


def test_forbidden_waits_are_allowed_again_after_an_error(sync_modes: list[int | str]) -> None:
    gpu = Place(device=torch.device("cuda", 0), folder=Path())
    with pytest.raises(RuntimeError, match="synchronizing"), forbidden_waits(gpu):
        raise RuntimeError(waits.SYNCHRONIZING)
    assert sync_modes == [0, "error", 0]


def test_products_are_in_full_float32_only_while_they_are_compared() -> None:
    before = torch.backends.cudnn.allow_tf32
    with full_float32():
        assert not torch.backends.cudnn.allow_tf32
        assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before
