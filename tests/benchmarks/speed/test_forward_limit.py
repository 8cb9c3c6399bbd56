"""Limits of what reads images: on a CPU times add up, beside a GPU the slower side counts."""

import os

import pytest
import torch

from benchmarks.speed import forward_limit
from benchmarks.speed.forward_limit import in_turn, limit, limits, network_work, precisions
from tests.fake_cuda.pretend import CUDA, pretend_cuda
from transfer.frozen import network

CPU = torch.device("cpu")


def test_work_in_turn_takes_the_sum_of_the_times() -> None:
    assert in_turn(100, 300) == pytest.approx(75)


def test_on_a_cpu_one_core_does_both_in_turn() -> None:
    assert limit("x", 300, 100, CPU) == (
        "x: the forward pass is the limit; pixels 300 images/s on one core, the network on it 100, "
        "together 75"
    )


def test_beside_a_gpu_all_cores_make_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    assert limit("x", 300, 2_000, CUDA) == (
        "x: decoding and cropping is the limit; pixels 1,200 images/s on 4 cores, the GPU 2,000, "
        "together 1,200"
    )


def test_a_probe_adds_its_steps_to_the_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_limit, "precisions", lambda _: ("float32",))
    extraction, probe = limits(90, 80, {"float32": 100, "probe": 300}, CPU).splitlines()
    assert "decoding and cropping is the limit; pixels 80" in extraction
    assert "the forward pass is the limit; pixels 90" in probe
    assert "the network on it 75" in probe


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "amx_bf16": False}, ("float32",)),
        ({"amx_bf16": True}, ("float32", "bfloat16")),
    ],
)
def test_bfloat16_is_timed_where_the_processor_has_it(
    capabilities: dict[str, bool], expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert precisions(CPU) == expected


def test_a_gpu_computes_images_that_lie_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (network, forward_limit):
        monkeypatch.setattr(module, "device", lambda: CUDA)
    monkeypatch.setattr(forward_limit, "precisions", lambda _: ("float32",))
    with pretend_cuda():
        work = network_work("resnet18", crop_px=32, batch_size=2)
        features = work["float32"].work()
        work["probe"].work()
    assert list(work) == ["float32", "probe"]
    assert isinstance(features, torch.Tensor)
    assert (features.device, features.shape) == (CUDA, (2, 512))
