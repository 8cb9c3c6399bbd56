"""The heads trained together are those trained alone, and a training resumed is one undisturbed."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transfer.finetune import (
    HeadOptimizer,
    Heads,
    Places,
    ProbeTraining,
    SavedTraining,
    new_heads,
)

CPU = torch.device("cpu")
RATES = (0.1, 1.0, 10.0)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(16, 8, generator=generator, dtype=torch.float64),
            torch.randint(0, 5, (16,), generator=generator),
        )
        for _ in range(count)
    ]


def start(rates: tuple[float, ...] = RATES) -> Heads:
    heads = new_heads(rates, num_classes=5, width=8, std=0.01, seed=3)
    return Heads(heads.weight.double(), heads.bias.double())


def train(rates: tuple[float, ...], training: ProbeTraining, steps: int) -> Heads:
    optimizer = HeadOptimizer(start(rates), training, CPU)
    for step, (features, labels) in enumerate(batches(steps)):
        optimizer.step(features, labels, training.rate_factor(step / steps))
    return optimizer.heads()


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_each_head_equals_torch_sgd_of_its_own(weight_decay: float) -> None:
    training = ProbeTraining(learning_rates=RATES, steps=20, weight_decay=weight_decay)
    together = train(RATES, training, 20)
    for index, rate in enumerate(RATES):
        own = start()
        weight, bias = own.weight[0].requires_grad_(), own.bias[0].requires_grad_()
        sgd = torch.optim.SGD([weight, bias], lr=rate, momentum=0.9, weight_decay=weight_decay)
        for step, (features, labels) in enumerate(batches(20)):
            sgd.param_groups[0]["lr"] = rate * 0.5 * (1 + math.cos(math.pi * step / 20))
            loss = F.cross_entropy(features @ weight.T + bias, labels)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
        torch.testing.assert_close(together.weight[index], weight.detach(), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(together.bias[index], bias.detach(), rtol=1e-9, atol=1e-11)


def test_heads_trained_together_are_those_trained_alone() -> None:
    training = ProbeTraining(learning_rates=RATES, steps=10)
    together = train(RATES, training, 10)
    for index, rate in enumerate(RATES):
        alone = train((rate,), ProbeTraining(learning_rates=(rate,), steps=10), 10)
        torch.testing.assert_close(together.weight[index], alone.weight[0], rtol=1e-9, atol=1e-12)


def test_step_returns_the_cross_entropy_of_each_head() -> None:
    heads = start()
    optimizer = HeadOptimizer(heads, ProbeTraining(learning_rates=RATES, steps=1), CPU)
    features, labels = batches(1)[0]
    expected = torch.stack([F.cross_entropy(rows, labels) for rows in heads.scores(features)])
    torch.testing.assert_close(optimizer.step(features, labels, 1.0), expected)


def test_step_decay_divides_by_ten_at_sixty_and_eighty_percent() -> None:
    training = ProbeTraining(learning_rates=(1.0,), epochs=100, decay="step")
    factors = [training.rate_factor(epoch / 100) for epoch in (0, 59, 60, 79, 80, 99)]
    assert factors == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_a_hundred_epochs_of_imagenet_100_are_this_many_steps() -> None:
    training = ProbeTraining(learning_rates=(1.0,), epochs=100)
    assert training.num_steps(126_689) == round(100 * 126_689 / 256)


def test_epochs_and_steps_together_are_refused() -> None:
    with pytest.raises(ValueError, match="epochs or steps"):
        ProbeTraining(learning_rates=(1.0,), epochs=1, steps=1).num_steps(10)


def test_every_image_is_seen_once_per_pass() -> None:
    batches_of = list(Places(num_images=10, batch_size=4, seed=0, steps=range(5)))
    seen = [index for batch in batches_of for _, index in batch]
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))
    assert seen[:10] != seen[10:]


def test_places_after_an_interruption_are_those_of_the_whole_run() -> None:
    whole = list(Places(num_images=10, batch_size=4, seed=0, steps=range(8)))
    assert list(Places(num_images=10, batch_size=4, seed=0, steps=range(5, 8))) == whole[5:]


def test_a_saved_training_goes_on_bit_for_bit(tmp_path: Path) -> None:
    training = ProbeTraining(learning_rates=RATES, steps=10)
    first = HeadOptimizer(start(), training, CPU)
    for step, (features, labels) in enumerate(batches(10)[:4]):
        first.step(features, labels, training.rate_factor(step / 10))
    SavedTraining(tmp_path / "heads.pt").save(first, 4)
    second = HeadOptimizer(start(), training, CPU)
    done = SavedTraining(tmp_path / "heads.pt").restore(second)
    for step, (features, labels) in enumerate(batches(10)[done:], done):
        second.step(features, labels, training.rate_factor(step / 10))
    assert torch.equal(second.heads().weight, train(RATES, training, 10).weight)
