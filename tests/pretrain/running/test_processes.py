"""Work shared by several processes, and errors passed between them."""

import pickle
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist

from pretrain.command import parse
from pretrain.job import planned_memory
from pretrain.running import processes, stop
from pretrain.running.processes import (
    Barriers,
    LaunchError,
    indices_of_process,
    pickled_error,
    process_group,
    tf32_convolutions,
    this_process,
)
from tests.two_processes import two_processes


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Return this process's part of five images, without and with a signal.

    The second image gets the signal.
    """
    process = this_process()
    share = list(indices_of_process(5, process))
    stop.listen()
    begun: list[int] = []
    status = None
    try:
        for index in indices_of_process(6, process):
            begun.append(index)
            if rank == 1:
                signal.raise_signal(signal.SIGTERM)
    except stop.Stopped as left:
        status = left.code
    return {"share": share, "begun": begun, "status": status}


@pytest.mark.slow
def test_processes_share_images_and_leave_together(tmp_path: Path) -> None:
    first, second = two_processes("tests.pretrain.running.test_processes", tmp_path)
    assert (first["share"], second["share"]) == ([0, 2, 4], [1, 3])
    assert (first["begun"], second["begun"]) == ([0], [1])
    assert first["status"] == second["status"] == stop.EXIT_RESUMABLE


@pytest.fixture
def joined_groups(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the calls of the process group of rank 1 of two, on a fake machine with two GPUs.

    Each is the device of a group, or "left".
    """
    calls: list[object] = []
    positions = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    for name, value in (positions | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "_store", lambda *_: Mock())
    monkeypatch.setattr(Barriers, "wait", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)

    def init(*_: object, device_id: torch.device, **options: object) -> None:
        assert "timeout" not in options  # torch's default timeout
        calls.append(device_id)

    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("left"))
    return calls


def test_a_failed_process_ends_without_waiting_for_the_others(joined_groups: list[object]) -> None:
    with process_group():
        pass
    with pytest.raises(torch.OutOfMemoryError), process_group():
        raise torch.OutOfMemoryError("CUDA out of memory")
    gpu = torch.device("cuda", 1)
    assert joined_groups == [gpu, "left", gpu]


def test_process_keeps_its_gpu_after_planning_has_started_cuda(
    joined_groups: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[bool] = []

    def has_bfloat16(**_: bool) -> bool:
        starts.append(True)
        return True

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", has_bfloat16)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(starts))
    planned_memory(parse("supervised/smoke", ["--data", "d", "--out", "o"]))
    assert torch.cuda.is_initialized()
    with process_group():
        pass
    assert joined_groups[0] == torch.device("cuda", 1)


def test_more_processes_than_gpus_are_refused(
    joined_groups: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LaunchError, match=r"LOCAL_RANK is 1, but .* is 1"), process_group():
        pass
    assert joined_groups == []


@pytest.mark.parametrize(("precision", "expected"), [("tf32", True), ("ieee", False)])
def test_tf32_of_convolutions_alone_is_read(
    precision: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    cudnn: Any = torch.backends.cudnn
    monkeypatch.setattr(cudnn.conv, "fp32_precision", precision)
    monkeypatch.setattr(cudnn.rnn, "fp32_precision", "ieee")
    assert tf32_convolutions() is expected


class OddError(RuntimeError):
    """An error that cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.made = lambda: None


def test_an_error_keeps_type_message_and_attributes(subtests: pytest.Subtests) -> None:
    for error in [
        OSError(28, "No space left on device", "/data/x.jpg"),
        KeyError("label"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ]:
        with subtests.test(error=error):
            copy = pickle.loads(pickled_error(error))
            assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)
            assert vars(copy) == vars(error)
            assert getattr(copy, "filename", None) == getattr(error, "filename", None)


def test_unpicklable_error_keeps_message_and_notes() -> None:
    error = OddError()
    error.add_note("while reading x.jpg")
    copy = pickle.loads(pickled_error(error))
    assert (type(copy), str(copy)) == (RuntimeError, "OddError: odd")
    assert copy.__notes__ == ["while reading x.jpg"]


@pytest.mark.parametrize(
    ("capability", "allowed", "expected"),
    [((8, 0), True, True), ((7, 5), True, False), ((9, 0), False, False), (None, True, False)],
)
def test_convolutions_run_in_tf32_on_gpus_that_have_it_where_torch_allows_it(
    capability: tuple[int, int] | None,
    allowed: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed):
        assert tf32_convolutions() is expected
