"""Shares of several processes are compared with one batch norm over the whole batch."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transfer.checks import processes
from transfer.checks.processes import (
    CHANNELS,
    MOST_SECONDS,
    check_norm,
    compare,
    compute,
    first_error,
)
from transfer.checks.report import CheckFailedError, NotCheckedError, Place

CPU = torch.device("cpu")


def shares(count: int = 2) -> list[dict[str, Tensor]]:
    """Return the shares of processes that see the whole batch's statistics."""
    whole = compute(nn.BatchNorm2d(CHANNELS).double(), range(count), CPU)
    each = []
    for rank in range(count):
        share = {name: whole[name].chunk(count)[rank] for name in ("outputs", "input gradients")}
        share |= {name: whole[name] / count for name in ("weight gradient", "bias gradient")}
        each.append(share | {name: whole[name] for name in ("running mean", "running variance")})
    return each


def test_processes_that_share_statistics_pass() -> None:
    assert compare("SyncBN", shares())["outputs"] == 0.0


def test_processes_with_statistics_of_their_own_fail() -> None:
    own = [compute(nn.BatchNorm2d(CHANNELS).double(), range(i, i + 1), CPU) for i in range(2)]
    with pytest.raises(CheckFailedError, match="outputs"):
        compare("SyncBN", own)


def test_an_input_gradient_without_the_other_processes_fails() -> None:
    wrong = shares()
    wrong[1]["input gradients"] = wrong[1]["input gradients"] * 0.5
    with pytest.raises(CheckFailedError, match="input gradients"):
        compare("SyncBN", wrong)


def test_the_variance_of_the_naive_norm_is_biased() -> None:
    with pytest.raises(CheckFailedError, match="running variance"):
        compare("naiveSyncBN", shares())


def test_one_gpu_is_skipped_aloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(NotCheckedError, match="one GPU"):
        check_norm("naiveSyncBN", Place(device="cuda", folder=tmp_path))


@pytest.mark.parametrize("prefix", ["", "[rank1]: "])
def test_the_reason_of_processes_is_their_own_first_error(prefix: str) -> None:
    text = f"{prefix}Traceback (most recent call last):\n{prefix}KeyError: 'a'\n"
    text += "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    assert first_error(text) == "KeyError: 'a'"
    assert first_error("nothing") == "no error was printed"


@pytest.mark.slow
def test_a_process_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'no norm'"):
        processes.start_processes(1, "no norm", tmp_path, MOST_SECONDS["cpu"])
