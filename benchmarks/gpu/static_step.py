"""A pre-training step that can be captured in a CUDA graph.

A graph replays kernels on the tensors that it was captured with. Therefore, all inputs of a step
are static tensors, which are set before each step. They are the views, labels, permutations of
shuffled batch norm, learning rates, and fractions of the run, which determine the momentum of
moving averages.
"""

import copy
from collections.abc import Mapping
from itertools import count
from unittest.mock import patch

import torch
from torch import Tensor

from pretrain.data.feed import Batch
from pretrain.job import Job
from pretrain.loop import Training, begin_step
from pretrain.optim import step_directions
from pretrain.parts import sync_bn
from pretrain.parts.sync_bn import upload

WAITS = "its losses wait for the device"
FREEZES = "it trains other parameters after the first epochs"
EXCLUDED: Mapping[str, str] = {
    **dict.fromkeys(("lorac", "simwhitening", "simtrace", "wmse", "zero_cl"), WAITS),
    **dict.fromkeys(("dino", "swav"), FREEZES),
}
"""Methods without a static step, and why."""


class StaticStep:
    """Steps of a training after the first one, in one process.

    The first step creates the momentum buffers. On a CPU, weights and losses equal the results of
    `training_step` bit for bit.
    """

    def __init__(self, job: Job, training: Training, batch: Batch) -> None:
        if job.recipe.method in EXCLUDED:
            raise ValueError(f"{job.name} has no static step: {EXCLUDED[job.recipe.method]}")
        device = job.process.device
        self.job, self.training = job, training
        self.views = [view.clone() for view in batch.views]
        self.extras = [extra.clone() for extra in batch.extras]
        self.permutations: list[Tensor] = []
        """Permutations of shuffled batch norm, in order of use.
        The first step adds them."""
        self.learning_rates = [
            torch.zeros((), device=device) for _ in training.optimizer.param_groups
        ]
        # a product with a float64 scalar tensor rounds like a product with a number
        self.progress = torch.zeros((), dtype=torch.float64, device=device)
        self.progress_before = torch.zeros_like(self.progress)
        """Fraction of the run before the step.
        It determines the momentum of moving averages."""
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
        self.progress_before.fill_(self.training.step / self.job.num_steps)
        groups = self.training.optimizer.param_groups
        for learning_rate, group in zip(self.learning_rates, groups, strict=True):
            learning_rate.fill_(group["lr"])
        for permutation in self.permutations:
            permutation.copy_(upload(torch.randperm(len(permutation)), permutation.device))
        new_inputs = (*batch.views, *batch.extras)
        for static_input, new_input in zip(self.views + self.extras, new_inputs, strict=True):
            static_input.copy_(new_input)

    def compute(self) -> None:
        """Compute losses, gradients and weights from the inputs.

        The graph captures this method.
        """
        job, optimizer, uses = self.job, self.training.optimizer, count()

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
            metrics = self.training.method(self.views, self.progress, *self.extras)
        optimizer.zero_grad(set_to_none=True)
        metrics["loss"].backward()
        for group, learning_rate in zip(optimizer.param_groups, self.learning_rates, strict=True):
            weights, directions = step_directions(optimizer, group)
            with torch.no_grad():
                # this rounds once, like torch's `add` with a number alpha
                torch._foreach_addcmul_(weights, directions, [-learning_rate] * len(weights))
        self.training.method.after_step(self.progress_before)
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
