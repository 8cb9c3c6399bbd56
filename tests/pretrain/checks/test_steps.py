"""Step reports: phases, floors, peaks and traces, from what is known without a GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pretrain.checks import scaling, steps
from pretrain.checks.gpu_peaks import BEST, FUSED, bf16_peak, has_floor
from pretrain.checks.phases import Stopwatch, split_forward_time, watch
from pretrain.checks.place import Place
from pretrain.checks.steps import distances, share_of_peak, step_report
from pretrain.checks.traces import STEP, Event, count
from pretrain.optim import lars, sgd
from pretrain.recipes import RECIPES
from tests.tiny_methods import forward, tiny_batch, tiny_method

CPU = torch.device("cpu")
PAPER_IMAGES = 1_281_167 * 200


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA GeForce RTX 4090", 165),
        ("Tesla V100-SXM2-16GB", None),
    ],
)
def test_the_peak_is_known_by_the_name(name: str, peak: float | None) -> None:
    assert bf16_peak(name) == peak


@pytest.mark.parametrize(
    ("trained", "keys", "fused_h", "best_h"),
    [(1, 1, 8.0, 5.1), (2, 2, 16.1, 10.2), (2, 0, 11.9, 8.2), (1, 5, 16.5, 9.1)],
    ids=["MoCo", "BYOL", "SimSiam", "JCL"],
)
def test_floors_give_the_hours_of_200_epochs(
    trained: int, keys: int, fused_h: float, best_h: float
) -> None:
    hours = [PAPER_IMAGES * floor.seconds(trained, keys) / 3600 for floor in (FUSED, BEST)]
    assert hours == pytest.approx([fused_h, best_h], abs=0.07)


def test_the_distance_compares_an_image_with_its_views() -> None:
    views = {"query pass": 64.0, "key pass": 64.0, "forward": 0.0}
    facts = distances("NVIDIA H200", "resnet50", views, 64, 4000.0)
    assert facts["trained_views_per_image"] == facts["key_views_per_image"] == 1
    assert facts["distance_to_fused_floor"] == pytest.approx(250e-6 / (83.4e-6 + 29.5e-6))


def test_no_distance_is_given_where_no_floor_is_known() -> None:
    assert distances("NVIDIA A100-SXM4-40GB", "resnet50", {}, 1, 1.0) == {}
    assert not has_floor("NVIDIA H200", "resnet18")


def test_the_share_of_the_peak_is_left_out_for_unknown_gpus() -> None:
    facts = {"gflop_per_image": 32.0, "images_per_s": 3000.0}
    known = share_of_peak("NVIDIA A100-SXM4-40GB", facts)
    assert known["tflops"] == 96
    assert known["share_of_bf16_peak"] == pytest.approx(96 / 312)
    assert share_of_peak("Another GPU", facts) == {"gpu": "Another GPU"}


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("moco", {"query pass": 8, "key pass": 8}),
        ("jcl", {"query pass": 8, "key pass": 16}),
        ("simsiam", {"query pass": 16, "key pass": 0}),
        ("byol", {"query pass": 16, "key pass": 16}),
        ("lorac", {"query pass": 16 + 16 / 4, "key pass": 16}),
    ],
)
def test_all_phases_of_the_reported_methods_are_timed(name: str, passes: dict[str, float]) -> None:
    method, stopwatch = tiny_method(name), Stopwatch(CPU)
    optimizer = sgd(method, learning_rate=0.1, momentum=0.9, weight_decay=0.0)
    watch(method, optimizer, stopwatch)
    forward(method, tiny_batch(method))["loss"].backward()
    optimizer.step()
    method.after_step(0.0)
    times = split_forward_time(stopwatch.milliseconds())
    expected = {"query pass", "loss", "backward", "optimizer"}
    expected |= {"key pass", "momentum update"} if passes["key pass"] else set()
    assert times.keys() == expected
    assert all(value > 0 for value in times.values())
    # views of 16 px, small ones of 8 px
    native = {phase: stopwatch.views[phase] * 224**2 / 16**2 for phase in passes}
    assert native == pytest.approx(passes)


def test_steps_of_lars_are_timed() -> None:
    method, stopwatch = tiny_method("simsiam"), Stopwatch(CPU)
    optimizer = lars(
        method,
        learning_rate=0.1,
        momentum=0.9,
        weight_decay=0.0,
        trust_coefficient=0.001,
        exclude_vectors=True,
    )
    watch(method, optimizer, stopwatch)
    forward(method, tiny_batch(method))["loss"].backward()
    optimizer.step()
    assert stopwatch.milliseconds()["optimizer"] > 0


def test_a_stopwatch_adds_up_and_forgets() -> None:
    stopwatch = Stopwatch(CPU)
    stopwatch.add("loss", 1.0, 1.5)
    stopwatch.add("loss", 2.0, 2.25)
    assert stopwatch.milliseconds() == {"loss": 750.0}
    stopwatch.clear()
    assert stopwatch.milliseconds() == {}


def trace_of_two_steps() -> Iterator[Event]:
    for begin in (0.0, 100.0):
        yield Event(STEP, begin, begin + 50)
        yield Event(STEP, begin, begin + 90, on_gpu=True)
        for place in range(3):
            yield Event("cudaLaunchKernel", begin + place, begin + place + 1)
        yield Event("cudaMemcpyAsync", begin + 5, begin + 6)
        yield Event("cudaStreamSynchronize", begin + 6, begin + 20)
        yield Event("Memcpy HtoD (Pinned -> Device)", begin + 5, begin + 8, on_gpu=True)
        yield Event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin, begin + 4, on_gpu=True)
    yield Event("cudaDeviceSynchronize", 180, 190)


def test_a_trace_is_counted_per_step_without_what_follows() -> None:
    counts = count(trace_of_two_steps(), 2)
    assert (counts.launches, counts.waits) == (3, 1)
    assert counts.upload_ms == pytest.approx(0.003)
    assert counts.collectives_ms == pytest.approx(0.004)


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def measure(place: Place, name: str, batch_size: int) -> dict[str, float | str]:
        tried.append(batch_size)
        if batch_size > 64:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return {"images_per_gpu": batch_size}

    monkeypatch.setattr(steps, "measure", measure)
    gpu = Place(device=torch.device("cuda", 0), folder=Path())
    assert step_report(gpu, "jcl").facts == {"images_per_gpu": 64}
    assert tried == [256, 128, 64]
    monkeypatch.setattr(steps, "BATCHES", (256, 128))
    assert step_report(gpu, "jcl").status == "failed"


def test_reported_recipes_are_published_runs_of_a_resnet50() -> None:
    for name, recipe in steps.RECIPES.items():
        assert RECIPES[recipe].method == name
        assert RECIPES[recipe].arch == "resnet50"


def test_with_one_gpu_scaling_is_left_out_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    outcome = scaling.scaling(Place(device=torch.device("cuda", 0), folder=Path()), "moco")
    assert (outcome.status, outcome.reason) == ("skipped", "one GPU")


@pytest.mark.slow
def test_a_report_on_a_cpu_has_all_phases(tmp_path: Path) -> None:
    outcome = step_report(Place(device=CPU, folder=tmp_path), "moco")
    assert outcome.status == "measured"
    phases = {"views", "upload", "momentum_update", "key_pass", "query_pass", "loss", "backward"}
    phases |= {"optimizer", "collectives"}
    assert {f"ms_{phase}" for phase in phases} <= outcome.facts.keys()
    # multiplications and additions: three times the forward pass with gradient, once without
    assert outcome.facts["gflop_per_image"] == pytest.approx(4 * 3.64 * (32 / 224) ** 2, rel=0.05)
