"""Processes that share a batch: what one process computes, and how a failure is reported."""

from pathlib import Path

import pytest
import torch

from pretrain.checks import processes
from pretrain.checks.catalog import SHARED
from pretrain.checks.place import Place
from pretrain.checks.processes import StartedError, cause, launch, num_processes, shared_batch
from pretrain.checks.shared_batch import results

CPU = torch.device("cpu")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(device=CPU, folder=tmp_path)


@pytest.mark.parametrize("part", SHARED)
def test_each_part_passes_for_its_own_results_and_fails_for_wrong_ones(
    part: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = results(part, CPU, 1, 0, groups=2)
    monkeypatch.setattr(processes, "in_processes", lambda place, number: {part: right})
    assert shared_batch(place, part).status == "passed"
    wrong = {name: 1.01 * values for name, values in right.items()}
    monkeypatch.setattr(processes, "in_processes", lambda place, number: {part: wrong})
    assert shared_batch(place, part).status == "failed"


def test_batch_norm_of_each_half_is_not_that_of_all_images() -> None:
    whole = results("shuffled batch norm", CPU, 1, 0, groups=1)
    split = results("shuffled batch norm", CPU, 1, 0, groups=2)
    assert not torch.allclose(whole["embeddings"], split["embeddings"][: len(whole["embeddings"])])


def test_with_one_gpu_processes_are_left_out_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    gpu = Place(device=torch.device("cuda", 0), folder=Path())
    assert num_processes(gpu) == 1
    outcome = shared_batch(gpu, SHARED[0])
    assert (outcome.status, outcome.reason) == ("skipped", "one GPU")


def test_the_cause_is_the_error_of_a_process() -> None:
    messages = """
[rank1]: Traceback (most recent call last):
[rank1]:   File "x.py", line 1, in <module>
[rank1]: torch.distributed.DistBackendError: NCCL error in: x.cpp
E1122 torch/distributed/elastic failed (exitcode: 1)
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
    assert cause(messages) == "torch.distributed.DistBackendError: NCCL error in: x.cpp"
    assert cause("nothing\n") == "no reason was printed"


@pytest.mark.slow
def test_processes_that_fail_are_reported() -> None:
    with pytest.raises(StartedError, match="2 processes of no_such_module failed"):
        launch("no_such_module", 2, [])


@pytest.mark.slow
@pytest.mark.parametrize("part", SHARED)
def test_two_processes_equal_one(part: str, place: Place) -> None:
    outcome = shared_batch(place, part)
    assert outcome.status == "passed", outcome.reason
