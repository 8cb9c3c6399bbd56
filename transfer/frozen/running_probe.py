"""A probe during training: optimizer, position in the stream, accuracies."""

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
    """Return R heads, initialized like separate runs with this seed."""
    generator = torch.Generator().manual_seed(seed)
    weight = std * torch.randn(num_classes, width, generator=generator, dtype=torch.float32)
    num_heads = len(rates)
    return Heads(
        weight.expand(num_heads, -1, -1).clone(),
        torch.zeros(num_heads, num_classes, dtype=torch.float32),
    )


class HeadOptimizer:
    """SGD with momentum as in torch.optim.SGD, with one learning rate per head.

    The R heads are rows of one matrix, so that a step is one product forward and one backward.
    """

    def __init__(self, heads: Heads, training: ProbeTraining, device: torch.device) -> None:
        num_heads, classes, width = heads.weight.shape
        self.shape = (num_heads, classes, width)
        self.training = training
        self.weight = heads.weight.reshape(num_heads * classes, width).to(device).clone()
        self.bias = heads.bias.reshape(num_heads * classes).to(device).clone()
        self.velocity = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]
        rates = torch.tensor(training.learning_rates, dtype=self.weight.dtype, device=device)
        self.rates = rates.repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, progress: float) -> Tensor:
        """Update all heads on a batch; return their losses (R,).

        features (n, C), labels (n,). progress: finished fraction of the training.
        """
        num_heads, classes, _ = self.shape
        factors = torch.tensor(self.training.rate_factors(progress), dtype=self.rates.dtype)
        rates = self.rates * upload(factors, self.rates.device).repeat_interleave(classes)
        logits = torch.addmm(self.bias, features, self.weight.T).view(-1, num_heads, classes)
        log_p = logits.log_softmax(dim=2)
        label_index = labels.view(-1, 1, 1).expand(-1, num_heads, 1)
        losses = -log_p.gather(2, label_index).squeeze(2).mean(dim=0)
        # d loss / d logits of cross-entropy: softmax minus one-hot
        # in place, since log_p is not used below
        gradient = log_p.exp_()
        gradient.scatter_add_(2, label_index, gradient.new_full(label_index.shape, -1.0))
        gradient = gradient.view(len(labels), num_heads * classes) / len(labels)
        self._update(0, self.weight, gradient.T @ features, rates[:, None])
        # as in LARC, weight decay and LARS ratio also apply to biases
        self._update(1, self.bias, gradient.sum(dim=0), rates)
        return losses

    def _update(self, index: int, parameter: Tensor, gradient: Tensor, rate: Tensor) -> None:
        update = gradient
        if self.training.weight_decay:
            update = gradient.add(parameter, alpha=self.training.weight_decay)
        # as in apex's LARC, the velocity includes the ratio but not the learning rate. In the LARS
        # paper (You et al.) it includes both, which differs while the learning rate decays
        if self.training.optimizer == "lars":
            update = update * self._ratios(parameter, gradient).view_as(rate)
        velocity = self.velocity[index].mul_(self.training.sgd_momentum).add_(update)
        parameter.sub_(rate * velocity)

    def _ratios(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Return the LARS ratios (R * L,).

        The ratio is 1 if all parameters or all gradients of a head are zero.
        """
        num_heads, classes, _ = self.shape
        weight_norm, gradient_norm = (
            t.reshape(num_heads, -1).norm(dim=1) for t in (parameter, gradient)
        )
        ratio = self.training.trust_coefficient * weight_norm
        ratio = ratio / (gradient_norm + self.training.weight_decay * weight_norm + 1e-8)
        defined = (weight_norm > 0) & (gradient_norm > 0)
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
    """The training of a probe on a stream of features."""

    def __init__(
        self,
        training: ProbeTraining,
        num_images: int,
        heads: Heads,
        device: torch.device,
        tested: Features | None = None,
    ) -> None:
        self.training, self.tested = training, tested
        self.optimizer = HeadOptimizer(heads, training, device)
        self.ends = training.epoch_ends(num_images)
        self.step = 0
        self.curve: list[list[float]] = []
        """Top-1 of each head on the tested features after each epoch.

        Epochs before the tested features were replaced are missing."""
        self._waiting: tuple[Tensor, Tensor] | None = None
        """Features and labels from `position` on, fewer than a batch."""

    @property
    def position(self) -> int:
        """Return the number of images that updates have used."""
        return self.step * self.training.batch_size

    @property
    def end(self) -> int:
        """Return the number of images after which the training ends."""
        return self.ends[-1] * self.training.batch_size

    @property
    def finished(self) -> bool:
        """Return whether all steps are done."""
        return self.step >= self.ends[-1]

    def receive(self, position: int, features: Tensor, labels: Tensor) -> None:
        """Train on features of the images from a position on.

        features (n, C), labels (n,). Images that updates have already used are ignored. Raises
        NotFiniteError if all heads diverge.
        """
        if self.finished:
            return
        waiting, size = self._waiting or (features[:0], labels[:0]), self.training.batch_size
        num_used = self.position + len(waiting[1]) - position
        features = torch.cat([waiting[0], features[num_used:]])
        labels = torch.cat([waiting[1], labels[num_used:]])
        while len(labels) >= size and not self.finished:
            self._update(features[:size], labels[:size])
            features, labels = features[size:], labels[size:]
        self._waiting = features, labels

    def _update(self, features: Tensor, labels: Tensor) -> None:
        losses = self.optimizer.step(features, labels, self.step / self.ends[-1])
        self.step += 1
        # reading a loss waits for the GPU, so only every 50th loss is checked
        is_checked = (self.step - 1) % 50 == 0 or self.finished
        if is_checked and not bool(losses.isfinite().any()):
            raise NotFiniteError(
                f"step {self.step - 1}: the loss of all {len(losses)} heads is infinite or not a "
                "number; no result is written. Check the backbone's features or lower the learning "
                "rates"
            )
        self._test_at_end_of_epoch()

    def _test_at_end_of_epoch(self) -> None:
        if self.tested is not None and self.step in self.ends:
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
        """Restore a saved state, without accuracies on other test features."""
        self.optimizer.load(state)
        self.step = state["step"]
        if self.tested is not None and state["curve_of"] == self.tested.digest:
            self.curve = state["curve"]
        else:
            self._test_at_end_of_epoch()
