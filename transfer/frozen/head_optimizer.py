"""SGD and LARS for several linear heads at once, each with its learning rate."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transfer.frozen.classifier import Heads
from transfer.frozen.network import upload
from transfer.frozen.probe_training import ProbeTraining


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


def new_heads(rates: Sequence[float], num_classes: int, width: int, std: float, seed: int) -> Heads:
    """Return R heads with equal initial weights, those that R separate runs of the seed have."""
    generator = torch.Generator().manual_seed(seed)
    weight = std * torch.randn(num_classes, width, generator=generator)
    count = len(rates)
    return Heads(weight.expand(count, -1, -1).clone(), torch.zeros(count, num_classes))
