"""One probe that is being trained: optimizer of its heads, place in the stream, accuracies."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pretrain.running.errors import NotFiniteError
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features
from transfer.frozen.network import upload
from transfer.frozen.probe_training import ProbeTraining


def new_heads(rates: Sequence[float], num_classes: int, width: int, std: float, seed: int) -> Heads:
    """Return R heads with equal initial weights, those that R separate runs of the seed have."""
    generator = torch.Generator().manual_seed(seed)
    weight = std * torch.randn(num_classes, width, generator=generator, dtype=torch.float32)
    count = len(rates)
    return Heads(
        weight.expand(count, -1, -1).clone(), torch.zeros(count, num_classes, dtype=torch.float32)
    )


class HeadOptimizer:
    """SGD with momentum in the form of torch.optim.SGD, with a learning rate per head.

    The R heads are rows of one matrix, so that a step is one product forward and one backward.
    """

    def __init__(self, heads: Heads, training: ProbeTraining, where: torch.device) -> None:
        count, classes, width = heads.weight.shape
        self.shape = (count, classes, width)
        self.training = training
        self.weight = heads.weight.reshape(count * classes, width).to(where).clone()
        self.bias = heads.bias.reshape(count * classes).to(where).clone()
        self.velocity = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]
        rates = torch.tensor(training.learning_rates, dtype=self.weight.dtype, device=where)
        self.rates = rates.repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, share: float) -> Tensor:
        """Update every head on features (n, C) and labels (n,); return the heads' losses (R,).

        share: finished share of the training.
        """
        count, classes, _ = self.shape
        factors = torch.tensor(self.training.rate_factors(share), dtype=self.rates.dtype)
        rates = self.rates * upload(factors, self.rates.device).repeat_interleave(classes)
        logits = torch.addmm(self.bias, features, self.weight.T).view(-1, count, classes)
        log_p = logits.log_softmax(dim=2)
        picked = labels.view(-1, 1, 1).expand(-1, count, 1)
        losses = -log_p.gather(2, picked).squeeze(2).mean(dim=0)
        # d loss / d logits of cross-entropy: softmax minus one-hot
        # in place: the losses are taken already, and nothing else needs log_p
        slope = log_p.exp_()
        slope.scatter_add_(2, picked, slope.new_full(picked.shape, -1.0))
        slope = slope.view(len(labels), count * classes) / len(labels)
        self._update(0, self.weight, slope.T @ features, rates[:, None])
        # biases decay and have LARS's ratio like weights, again as in LARC
        self._update(1, self.bias, slope.sum(dim=0), rates)
        return losses

    def _update(self, index: int, parameter: Tensor, slope: Tensor, rate: Tensor) -> None:
        direction = slope
        if self.training.weight_decay:
            direction = slope.add(parameter, alpha=self.training.weight_decay)
        # as in apex's LARC the ratio enters the velocity, but the learning rate does not; in the
        # paper on LARS (You et al.) both do, which differs while the rate decays
        if self.training.optimizer == "lars":
            direction = direction * self._ratios(parameter, slope).view_as(rate)
        velocity = self.velocity[index].mul_(self.training.sgd_momentum).add_(direction)
        parameter.sub_(rate * velocity)

    def _ratios(self, parameter: Tensor, slope: Tensor) -> Tensor:
        """Return LARS's local rates (R * L,); 1 if a head's parameter or gradient is all zero."""
        count, classes, _ = self.shape
        size, gradient = (t.reshape(count, -1).norm(dim=1) for t in (parameter, slope))
        ratio = self.training.trust_coefficient * size
        ratio = ratio / (gradient + self.training.weight_decay * size + 1e-8)
        defined = (size > 0) & (gradient > 0)
        return torch.where(defined, ratio, torch.ones_like(ratio)).repeat_interleave(classes)

    def heads(self) -> Heads:
        """Return the current heads, on the CPU."""
        return Heads(self.weight.view(self.shape).cpu(), self.bias.view(self.shape[:2]).cpu())

    def state(self) -> dict[str, Tensor]:
        """Return the state that a resumed run needs."""
        names = ("weight", "bias", "weight_velocity", "bias_velocity")
        return dict(zip(names, (self.weight, self.bias, *self.velocity), strict=True))

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


class RunningProbe:
    """A training that takes its batches from a stream of features."""

    def __init__(
        self,
        training: ProbeTraining,
        num_images: int,
        heads: Heads,
        where: torch.device,
        tested: Features | None = None,
    ) -> None:
        self.training, self.tested = training, tested
        self.optimizer = HeadOptimizer(heads, training, where)
        self.ends = training.pass_ends(num_images)
        self.step = 0
        self.curve: list[list[float]] = []
        """Top-1 of each head on the tested features after each pass, which is only reported; passes
        before these features were replaced are missing."""
        self._waiting: list[tuple[Tensor, Tensor]] = []
        """Features and labels of images from `place` on, fewer than a batch."""

    @property
    def place(self) -> int:
        """Return the number of images of the stream that updates have used."""
        return self.step * self.training.batch_size

    @property
    def end(self) -> int:
        """Return the number of images of the stream after which the training ends."""
        return self.ends[-1] * self.training.batch_size

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.ends[-1]

    def receive(self, place: int, features: Tensor, labels: Tensor) -> None:
        """Train on the features (n, C) and labels (n,) of the stream's images from a place on.

        Images that updates have used already are ignored. NotFiniteError if all heads diverge.
        """
        used = self.place + sum(len(waiting) for _, waiting in self._waiting) - place
        if used < len(labels) and not self.finished:
            self._waiting.append((features[used:], labels[used:]))
        size = self.training.batch_size
        while not self.finished and sum(len(waiting) for _, waiting in self._waiting) >= size:
            parts = list(zip(*self._waiting, strict=True))
            batch, classes = (part[0] if len(part) == 1 else torch.cat(part) for part in parts)
            self._update(batch[:size], classes[:size])
            self._waiting = [(batch[size:], classes[size:])] if len(classes) > size else []

    def _update(self, features: Tensor, labels: Tensor) -> None:
        losses = self.optimizer.step(features, labels, self.step / self.ends[-1])
        self.step += 1
        # reading a loss waits for the GPU, so most steps are not looked at
        looked_at = (self.step - 1) % 50 == 0 or self.finished
        if looked_at and not bool(losses.isfinite().any()):
            raise NotFiniteError(
                f"step {self.step - 1}: the loss of all {len(losses)} heads is infinite or not a "
                "number; no result is written. Check the backbone's features, or lower the rates"
            )
        if self.step in self.ends:
            self._test()

    def _test(self) -> None:
        if self.tested is not None:
            self.curve.append(self.optimizer.heads().accuracies(self.tested))

    def state(self) -> dict[str, Any]:
        """Return the state that a resumed run needs."""
        return {
            **self.optimizer.state(),
            "step": self.step,
            "curve": self.curve,
            "curve_of": self.tested.digest if self.tested else "",
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore a saved state; accuracies on other test features are left out."""
        self.optimizer.load(state)
        self.step = state["step"]
        if self.tested is not None and state["curve_of"] == self.tested.digest:
            self.curve = state["curve"]
        elif self.step in self.ends:
            self._test()
