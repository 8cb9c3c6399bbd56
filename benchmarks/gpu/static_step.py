"""A pre-training step that can be captured in a CUDA graph.

It supports methods with a constant momentum. A graph replays kernels on the tensors that it was
captured with. Therefore, views, permutations of the keys, learning rates and progress are static
tensors, which are set before each step.
"""

import copy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from pretrain.data.feed import Batch
from pretrain.job import Job
from pretrain.loop import Training, begin_step
from pretrain.parts import sync_bn
from pretrain.parts.sync_bn import upload

METHODS = ("moco", "multi_key", "jcl")
"""Methods without labels and without an update after the optimizer's step."""


class StaticStep:
    """Steps of a training after the first one.

    The first step creates the momentum buffers. Requires SGD in one process with a constant set of
    parameters. On a CPU, weights and losses equal the results of `training_step` bit for bit.
    """

    def __init__(self, job: Job, training: Training, batch: Batch) -> None:
        if job.recipe.method not in METHODS or job.recipe.optimizer != "sgd":
            raise ValueError(
                f"no static step for {job.name}, only for {', '.join(METHODS)} with SGD"
            )
        device = job.process.device
        self.job, self.training = job, training
        self.views = [view.clone() for view in batch.views]
        self.permutations: list[Tensor] = []
        """Permutations of the keys in order of use, from the first step."""
        self.learning_rates = [
            torch.zeros((), device=device) for _ in training.optimizer.param_groups
        ]
        # a product with a float64 scalar tensor rounds like a product with a number
        self.progress = torch.zeros((), dtype=torch.float64, device=device)
        self.metrics: dict[str, Tensor] = {}
        self.graph: torch.cuda.CUDAGraph | None = None

    def take(self, batch: Batch) -> None:
        """Set the inputs, then replay the graph or compute without one."""
        self.set_inputs(batch)
        if self.graph is None:
            self.compute()
        else:
            self.graph.replay()
        self.training.window.add({name: value.clone() for name, value in self.metrics.items()})
        self.training.step += 1

    def set_inputs(self, batch: Batch) -> None:
        """Set the views and all other inputs that change in each step."""
        self.progress.fill_(begin_step(self.job, self.training))
        groups = self.training.optimizer.param_groups
        for learning_rate, group in zip(self.learning_rates, groups, strict=True):
            learning_rate.fill_(group["lr"])
        for permutation in self.permutations:
            permutation.copy_(upload(torch.randperm(len(permutation)), permutation.device))
        for static_view, view in zip(self.views, batch.views, strict=True):
            static_view.copy_(view)

    def compute(self) -> None:
        """Compute losses, gradients and weights from the inputs; the graph captures this."""
        job, optimizer, uses = self.job, self.training.optimizer, iter(range(2**31))

        def static_permutation(permutation: Tensor, device: torch.device) -> Tensor:
            index = next(uses)
            if index == len(self.permutations):
                self.permutations.append(upload(permutation, device))
            return self.permutations[index]

        enabled = job.dtype == torch.bfloat16
        with (
            patch.object(sync_bn, "upload", static_permutation),
            torch.autocast(job.process.device.type, torch.bfloat16, enabled=enabled),
        ):
            metrics = self.training.method(self.views, self.progress)
        optimizer.zero_grad(set_to_none=True)
        metrics["loss"].backward()
        for group, learning_rate in zip(optimizer.param_groups, self.learning_rates, strict=True):
            sgd_step(optimizer, group, learning_rate)
        self.metrics = {name: value.detach() for name, value in metrics.items()}

    def capture(self) -> None:
        """Capture the graph on a GPU, and undo the warmup steps."""
        state = copy.deepcopy(self.training.state_dict())
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        self.training.load_state_dict(state)
        self.training.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.compute()
        self.graph = graph


@torch.no_grad()
def sgd_step(
    optimizer: torch.optim.Optimizer, group: dict[str, Any], learning_rate: Tensor
) -> None:
    """Apply torch's SGD step with a learning rate on the device."""
    weights = group["params"]
    gradients = [weight.grad for weight in weights]
    momenta = [optimizer.state[weight]["momentum_buffer"] for weight in weights]
    directions = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, directions)
    # rounds once, as torch's `add` with a number alpha does
    torch._foreach_addcmul_(weights, momenta, [-learning_rate] * len(weights))
