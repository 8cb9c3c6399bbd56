"""Probes of several checkpoints are trained on one stream of random crops."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from benchmarks.execution.graph import job_graph
from benchmarks.planning.plan import PlannedCell, with_jobs_and_hours
from pretrain.running import stop
from pretrain.running.host_memory import image_memory
from transfer.cells import state
from transfer.cells.cell import Cell, finished
from transfer.cells.execution import extract_together, train_probes_together
from transfer.cells.job import run
from transfer.cells.request import Request, Settings
from transfer.encoders.encoder import Encoder
from transfer.encoders.options import Checkpoint
from transfer.frozen.crops import RandomCrops
from transfer.frozen.network import frozen_network
from transfer.record import Record

KINDS = (
    "transfer_linear/dtd",
    pytest.param("in100_linear@looc", marks=pytest.mark.slow),
    pytest.param("rotation4_linear", marks=pytest.mark.slow),
)
Requests = Callable[[str], list[Request]]


@pytest.fixture
def both(checkpoint: Path, other_checkpoint: Path, settings: Settings) -> Requests:
    """Return a function that requests a task for two checkpoints."""
    checkpoints = [Checkpoint(ckpt=file) for file in (checkpoint, other_checkpoint)]
    return lambda key: [
        Request(task=key, checkpoint=item, settings=settings) for item in checkpoints
    ]


@pytest.fixture
def requests(both: Requests) -> list[Request]:
    """Two trainings, one after the other."""
    return both("transfer_linear/dtd")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the random crops that are made; each batch is made in this process."""
    made, numbers = RandomCrops.__call__, list[int]()

    def counted(crops: RandomCrops, draws: Sequence[Any]) -> Any:
        numbers.extend(number for number, _ in draws)
        return made(crops, draws)

    monkeypatch.setattr(RandomCrops, "__call__", counted)
    monkeypatch.setattr("transfer.frozen.crops.num_workers", lambda _: 0)
    return numbers


def elsewhere(request: Request) -> Request:
    parent = request.settings.runs.parent
    settings = replace(request.settings, results=parent / "results-2", runs=parent / "runs-2")
    return replace(request, settings=settings)


def numbers_of(record: Record | None) -> list[object]:
    assert record is not None
    return [record.metrics, record.details, record.protocol, record.data]


@pytest.mark.parametrize("key", KINDS)
def test_records_are_those_of_separate_evaluations(
    key: str, both: Requests, drawn: list[int]
) -> None:
    requests = both(key)
    with image_memory(0):
        assert run(requests) == 0
        num_together = len(drawn)
        alone = [elsewhere(request) for request in requests]
        assert [run([request]) for request in alone] == [0] * len(requests)
    assert num_together > 0
    assert len(drawn) == 3 * num_together
    for request, single in zip(requests, alone, strict=True):
        joint = finished(Cell.of(request))
        assert numbers_of(joint) == numbers_of(finished(Cell.of(single)))


def test_backbones_of_different_normalization_share_crops(
    both: Requests, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe with the standard deviation of its paper contains the backbone's own."""
    mine, other = map(Cell.of, both("in1k_linear@lorac-code"))
    form = replace(other.backbone.input, std=(0.5, 0.5, 0.5))
    other = replace(other, backbone=replace(other.backbone, input=form))
    assert mine.task != other.task
    extraction = Mock()
    monkeypatch.setattr("transfer.cells.execution.features_of_backbones", extraction)
    extract_together([mine, other])
    assert [len(call.args[0]) for call in extraction.call_args_list] == [2]
    training = Mock(return_value={})
    monkeypatch.undo()
    monkeypatch.setattr("transfer.frozen.linear_heads.train_passes", training)
    train_probes_together([mine, other])
    assert [len(call.args[0]) for call in training.call_args_list] == [2, 0]


def test_records_state_the_share_of_joint_work(
    requests: list[Request], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(cells: Sequence[Cell]) -> None:
        clock[0] += 100.0

    clock = [0.0]
    monkeypatch.setattr("transfer.cells.job.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("transfer.cells.job.train_probes_together", work)
    assert run(requests) == 0
    records = [finished(Cell.of(request)) for request in requests]
    assert all(record and 50.0 <= record.wall_s < 51.0 for record in records)


def test_a_stopped_joint_training_resumes(
    requests: list[Request], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stop, "_received_signals", [15])
        patch.setattr(stop, "is_requested", lambda: len(drawn) >= 1000)
        with image_memory(0), pytest.raises(stop.Stopped):
            run(requests)
    assert run(requests) == 0
    num_together = len(drawn)
    alone = [elsewhere(request) for request in requests]
    assert [run([request]) for request in alone] == [0, 0]
    assert len(drawn) == 3 * num_together
    for request, single in zip(requests, alone, strict=True):
        joint = finished(Cell.of(request))
        assert numbers_of(joint) == numbers_of(finished(Cell.of(single)))


def test_a_backbone_that_fails_leaves_the_others_and_its_reason(
    requests: list[Request],
    drawn: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine, broken = map(Cell.of, requests)

    def build(backbone: Encoder) -> nn.Module:
        if backbone.sha256 == broken.backbone.sha256:
            raise torch.OutOfMemoryError("no memory for this one")
        return frozen_network(backbone)

    monkeypatch.setattr("transfer.frozen.linear_heads.frozen_network", build)
    assert run(requests) == 1
    assert finished(mine) is not None
    assert "no memory for this one" in state.failure(broken)
    assert "this cell trains separately" in capsys.readouterr().err


def test_a_backbone_whose_features_are_not_finite_leaves_the_others(
    requests: list[Request], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, broken = map(Cell.of, requests)
    built = list[nn.Module]()

    class NotFinite(nn.Module):
        """A network whose features are not numbers."""

        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: Tensor) -> Tensor:
            """Return features (n, C)."""
            features: Tensor = self.network(images)
            return features * float("nan")

    def build(backbone: Encoder) -> nn.Module:
        network = frozen_network(backbone)
        if backbone.sha256 == broken.backbone.sha256:
            network = NotFinite(network)
        built.append(network)
        return network

    for module in ("extraction", "linear_heads"):
        monkeypatch.setattr(f"transfer.frozen.{module}.frozen_network", build)
    assert run(requests) == 1
    assert finished(mine) is not None
    assert "NotFiniteError" in state.failure(broken)


def test_probes_of_all_checkpoints_form_one_job_per_stream(both: Requests) -> None:
    keys = ("transfer_linear/dtd", "in100_linear@looc", "rotation4_linear")
    cells = [Cell.of(request) for key in keys for request in both(key)]
    rows = [PlannedCell(cell, "run", (), 1.0, core_hours=4.0) for cell in cells]
    priced = with_jobs_and_hours(rows, 2, 1)
    # decoding takes two hours on two cores, the two networks one hour each
    assert [row.gpu_hours for row in priced] == [2.0, 0.0] * 3
    assert [len(job.cells) for job in job_graph(priced)] == [2, 2, 2]
    assert {row.reason for row in priced[1::2]} == {
        f"shares random crops with {cells[0].backbone.name}"
    }
    # with four GPUs and fast decoding, each network has a job of its own
    fast = [replace(row, core_hours=0.5) for row in rows]
    assert len(job_graph(with_jobs_and_hours(fast, 2, 4))) == 6
    seeds = [replace(cell.request, seed=seed) for cell in cells[:1] for seed in (0, 1)]
    other_seeds = [PlannedCell(Cell.of(item), "run", (), 1.0) for item in seeds]
    assert len(job_graph(with_jobs_and_hours(other_seeds, 2, 1))) == 2
