"""A pre-training step that a CUDA graph can hold, for methods whose momentum is constant.

A graph replays kernels on the tensors that it was captured with. So views, permutations of the
keys, learning rates and progress are tensors that stay in place, and are set before each step.
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
"""Methods that need nothing else: no labels, and nothing after the optimizer's step."""


class StaticStep:
    """The steps of a training after its first one, which has made the optimizer's momenta.

    SGD on one process, in an unchanged set of parameters. Weights and losses equal those of
    `training_step` bit for bit on a CPU.
    """

    def __init__(self, job: Job, training: Training, batch: Batch) -> None:
        if job.recipe.method not in METHODS or job.recipe.optimizer != "sgd":
            raise ValueError(f"{job.name} has no static step; {', '.join(METHODS)} with SGD do")
        device = job.process.device
        self.job, self.training = job, training
        self.views = [view.clone() for view in batch.views]
        self.permutations: list[Tensor] = []
        """Orders of the keys, in the sequence of their use; the first step adds them."""
        self.rates = [torch.zeros((), device=device) for _ in training.optimizer.param_groups]
        # a product with float64 of no axes rounds as one with a number
        self.progress = torch.zeros((), dtype=torch.float64, device=device)
        self.metrics: dict[str, Tensor] = {}
        self.graph: torch.cuda.CUDAGraph | None = None

    def take(self, batch: Batch) -> None:
        """Take a step: set its inputs, then replay the graph, or compute without one."""
        self.set_inputs(batch)
        if self.graph is None:
            self.compute()
        else:
            self.graph.replay()
        self.training.window.add({name: value.clone() for name, value in self.metrics.items()})
        self.training.step += 1

    def set_inputs(self, batch: Batch) -> None:
        """Set the views and all that changes from step to step."""
        self.progress.fill_(begin_step(self.job, self.training))
        for rate, group in zip(self.rates, self.training.optimizer.param_groups, strict=True):
            rate.fill_(group["lr"])
        for order in self.permutations:
            order.copy_(upload(torch.randperm(len(order)), order.device))
        for own, view in zip(self.views, batch.views, strict=True):
            own.copy_(view)

    def compute(self) -> None:
        """Compute losses, gradients and weights from the inputs; all of it is captured."""
        job, optimizer, uses = self.job, self.training.optimizer, iter(range(2**31))

        def own_permutation(drawn: Tensor, device: torch.device) -> Tensor:
            use = next(uses)
            if use == len(self.permutations):
                self.permutations.append(upload(drawn, device))
            return self.permutations[use]

        enabled = job.dtype == torch.bfloat16
        with (
            patch.object(sync_bn, "upload", own_permutation),
            torch.autocast(job.process.device.type, torch.bfloat16, enabled=enabled),
        ):
            metrics = self.training.method(self.views, self.progress)
        optimizer.zero_grad(set_to_none=True)
        metrics["loss"].backward()
        for group, rate in zip(optimizer.param_groups, self.rates, strict=True):
            sgd_step(optimizer, group, rate)
        self.metrics = {name: value.detach() for name, value in metrics.items()}

    def capture(self) -> None:
        """Capture the graph on a GPU; the steps before it, which choose kernels, are undone."""
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
def sgd_step(optimizer: torch.optim.Optimizer, group: dict[str, Any], rate: Tensor) -> None:
    """Take torch's SGD step with a learning rate on the device, which torch would read."""
    weights = group["params"]
    gradients = [weight.grad for weight in weights]
    momenta = [optimizer.state[weight]["momentum_buffer"] for weight in weights]
    directions = torch._foreach_add(gradients, weights, alpha=group["weight_decay"])
    torch._foreach_mul_(momenta, group["momentum"])
    torch._foreach_add_(momenta, directions)
    # rounds once, as torch's `add` with a number alpha does
    torch._foreach_addcmul_(weights, momenta, [-rate] * len(weights))
