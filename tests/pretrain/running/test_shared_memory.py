"""Tensors reach another process through shared memory, or copied where it is full."""

import pickle
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from pretrain.running.loader import load_batches
from pretrain.running.shared_memory import note_small_shared_memory, pack_batch


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def shared_memory_of(total: int, free: int) -> Callable[[Path], Usage]:
    return lambda path: Usage(total, total - free, free)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared memory of 64 MB, as containers have, without room."""
    monkeypatch.setattr(shutil, "disk_usage", shared_memory_of(2**26, 2**20))


@dataclass
class Batch:
    images: Tensor
    labels: list[int]


def send(batch: Batch) -> Batch:
    """Return a batch as another process would receive it."""
    received: Batch = pickle.loads(pack_batch(batch))
    return received


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 4)])
def test_a_copied_tensor_keeps_type_shape_and_values(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    images = torch.randint(0, 2, shape).to(dtype)
    received = send(Batch(images, [1, 2]))
    assert received.images.dtype == dtype
    assert received.images.shape == images.shape
    assert torch.equal(received.images, images)
    assert received.labels == [1, 2]


@pytest.mark.usefixtures("full")
def test_a_part_of_a_tensor_is_copied_alone() -> None:
    whole = torch.arange(10_000.0).reshape(100, 100)
    batch = Batch(whole[:, 3], [])
    assert len(pack_batch(batch)) < 2_000
    assert torch.equal(send(batch).images, whole[:, 3])
    assert not whole.is_shared()


@pytest.mark.usefixtures("full")
def test_batches_larger_than_the_shared_memory_come_in_order() -> None:
    batches = load_batches(lambda n: torch.full((1000, 100), n), range(9), num_workers=2)
    assert [(batch.shape, int(batch[-1, -1])) for batch in batches] == [
        ((1000, 100), number) for number in range(9)
    ]


@pytest.mark.parametrize(("total", "lines"), [(2**26, 1), (2**33, 0)])
def test_a_small_shared_memory_is_noted_once_with_advice(
    total: int, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note_small_shared_memory.cache_clear()
    monkeypatch.setattr(shutil, "disk_usage", shared_memory_of(total, total))
    for _ in range(2):
        note_small_shared_memory()
    noted = capsys.readouterr().err
    assert noted.count("/dev/shm has 67 MB") == lines
    assert noted.count("docker run --shm-size=8g") == lines
    note_small_shared_memory.cache_clear()
