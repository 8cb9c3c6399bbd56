"""A resumed training passes, and fails without momenta or with momenta in another layout."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transfer.checks import resume
from transfer.checks.report import CheckFailedError, Place
from transfer.checks.resume import Subject, check_resume
from transfer.finetuning.state import Training, restore


class Network(nn.Module):
    """A convolution whose mean square is the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def forward(self, samples: list[Tensor]) -> dict[str, Tensor]:
        """Return one loss."""
        return {"loss": self.layer(torch.stack(samples)).square().mean()}


def subject() -> Subject:
    network = Network()
    samples = list(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)))
    return Subject(network, torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9), samples)


def forget_momenta(training: Training) -> None:
    training.optimizer.state.clear()


def lay_out_otherwise(training: Training) -> None:
    for state in training.optimizer.state.values():
        state["momentum_buffer"] = state["momentum_buffer"].contiguous()


def halve_momenta(training: Training) -> None:
    for state in training.optimizer.state.values():
        state["momentum_buffer"] *= 0.5


def test_a_training_restored_as_it_was_saved_passes(tmp_path: Path) -> None:
    facts = check_resume(subject, Place(device="cpu", folder=tmp_path))
    assert facts["steps after the resume"] == 0.0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (forget_momenta, "some are not restored.*steps after the resume"),
        (halve_momenta, "restored weights and momenta.*steps after the resume"),
        (lay_out_otherwise, "memory layout"),
    ],
)
def test_a_faulty_restoration_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[Training], None],
    reason: str,
) -> None:
    def faulty(training: Training, path: Path) -> None:
        restore(training, path)
        fault(training)

    monkeypatch.setattr(resume, "restore", faulty)
    with pytest.raises(CheckFailedError, match=reason):
        check_resume(subject, Place(device="cpu", folder=tmp_path))
