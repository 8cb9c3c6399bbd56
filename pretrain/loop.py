"""The only pre-training loop.

A run is a sequence of steps, counted from 0. Each step depends only on its number, the seed and the
state before it, so a resumed run equals an uninterrupted one.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchvision.models import ResNet

from pretrain import checkpoint
from pretrain.data.feed import Batch
from pretrain.export import remove_earlier_snapshots, write_snapshot
from pretrain.job import Job
from pretrain.method import Method
from pretrain.metrics import MetricsLog, Window, save_view_grid
from pretrain.optim import build_optimizer, scheduled_rate
from pretrain.parts.resnet import BranchedResNet
from pretrain.running import stop
from pretrain.running.console import Progress, print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import any_process
from pretrain.running.torch_versions import compile_module, data_parallel


def compile_networks(method: Method, *, by_stage: bool = False, backend: str = "inductor") -> None:
    """Compile the backbones of a method and of its momentum encoder.

    Each is compiled at its first call. by_stage: compile each of the four stages separately. So DDP
    can send the last stage's gradients while the others are still computed.
    """
    modules: list[nn.Module] = []
    for module in method.modules():
        # methods call trunk and heads, not the module, so only its stages can be compiled
        if isinstance(module, BranchedResNet):
            modules += module.layer1, module.layer2, module.layer3, *module.layer4
        elif by_stage and isinstance(module, ResNet):
            modules += module.layer1, module.layer2, module.layer3, module.layer4
        elif isinstance(module, type(method.backbone)):
            modules.append(module)
    for compiled in modules:
        compile_module(compiled, backend=backend)


LIMIT = torch.finfo(torch.float32).max ** 0.5
"""Magnitude whose square overflows float32, so that norms and variances become infinite."""


class Training:
    """State of a run: networks, optimizer, step, unread metrics."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.method = job.method.to(job.process.device).train()
        # views have only one or two sizes, so cuDNN benchmarks few shapes
        torch.backends.cudnn.benchmark = job.process.device.type == "cuda"
        self.method = self.method.to(memory_format=torch.channels_last)
        self.optimizer = build_optimizer(self.method, job.recipe)
        # look up every name, even if its freeze is already over, so that wrong names fail
        self.frozen_until = [
            (self.method.get_parameter(name), fraction)
            for name, fraction in job.method.frozen_until.items()
        ]
        self.step = 0
        self.window = Window()
        self.window_start_s = time.monotonic()
        self.waited_s = 0.0
        """Time since the start of the window spent waiting for batches."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "window": self.window.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.window.load_state_dict(state["window"])


def train(job: Job) -> int:
    """Run or resume a training; return the number of finished steps.

    It ends after the last step or at a request to stop. Raises NotFiniteError if a loss is not
    finite; the last checkpoint was saved before that.
    """
    training, is_main = Training(job), job.process.is_main
    state = checkpoint.load(job.checkpoint_path, job.settings, job.published)
    if state is not None:
        training.load_state_dict(state)
        if problem := find_problem(training):
            raise checkpoint.CheckpointError(
                f"{job.checkpoint_path} cannot be resumed: {problem}. Delete it to start again"
            )
        if is_main:
            print_line(
                f"resuming {job.checkpoint_path} after step {training.step} of {job.num_steps}"
            )
        del state  # free the copy of all weights and momenta
    _require_same_step(job, training.step)
    if is_main and training.step == 0:
        if num_removed := remove_earlier_snapshots(job):
            folder = job.command.out / "snapshots"
            print_line(f"note: removed {num_removed} snapshots of an earlier run from {folder}")
        if job.is_snapshot_step(0):
            write_snapshot(job, 0)
    batches = job.feed.batches(training.step, job.num_steps)
    with closing(batches), ExitStack() as stack:
        outputs = None
        if is_main:
            log = MetricsLog(job.command.out, training.step, job.command.wandb, job.settings)
            stack.enter_context(closing(log))
            size = job.recipe.batch_size
            bar = progress("train", job.name, job.num_steps * size, done=training.step * size)
            outputs = log, stack.enter_context(bar)
        _take_steps(job, training, outputs, batches)
    return training.step


def _require_same_step(job: Job, step: int) -> None:
    """Raise CheckpointError unless all processes start after the same step."""
    steps = [step] * job.process.num_processes
    if len(steps) > 1:
        dist.all_gather_object(steps, step)
    if len(set(steps)) > 1:
        raise checkpoint.CheckpointError(
            f"the processes start after different steps (by rank: {steps}). --out must be a folder "
            "that all nodes share"
        )


Outputs = tuple[MetricsLog, Progress] | None
"""Log and progress bar; None except on the main process."""


def _take_steps(job: Job, training: Training, outputs: Outputs, batches: Iterator[Batch]) -> None:
    """Train, log, and write snapshots and checkpoints."""
    network = wrap_network(job, training.method)
    is_main = job.process.is_main
    saved_s = time.monotonic()
    stopping = False
    while training.step < job.num_steps and not stopping:
        start_s = time.monotonic()
        batch = next(batches)
        training.waited_s += time.monotonic() - start_s
        if training.step == 0 and is_main:
            save_view_grid(
                job.command.out, batch.views, job.recipe.views.mean, job.recipe.views.std
            )
        training_step(job, training, network, batch)
        stop.note_step()
        is_read_step = job.is_read_step(training.step)
        # processes agree on a stop only where they wait for the device anyway
        if is_read_step or job.process.num_processes == 1:
            (stopping,) = any_process([stop.is_requested()], job.process)
        # clocks differ between processes: at a read step, all have checked before the first saves
        is_due = (
            is_read_step and time.monotonic() - saved_s > 60 * job.command.execution.save_every_min
        )
        is_end = stopping or training.step == job.num_steps
        must_save = is_due or is_end
        is_snapshot = job.is_snapshot_step(training.step)
        # weights updated by a bad loss must not replace a good checkpoint
        if is_read_step or is_end or is_snapshot:
            _require_finite(job, training)
        if is_read_step:
            _require_whitened(job, training)
        if outputs is not None:
            outputs[1].add(job.recipe.batch_size)
        if is_read_step:
            _read(job, training, outputs)
        if (must_save or is_snapshot) and is_main and (problem := find_problem(training)):
            raise _not_finite(job, f"{problem} after step {training.step}")
        # before the checkpoint, so that a resumed run repeats an interrupted snapshot
        if is_main and is_snapshot:
            write_snapshot(job, training.step)
        if must_save:
            saved_s = time.monotonic()
        if must_save and is_main:
            state = training.state_dict() | {"settings": job.settings}
            checkpoint.save(job.checkpoint_path, state)


def _read(job: Job, training: Training, outputs: Outputs) -> None:
    """Log and empty the window, and show the loss."""
    means = training.window.take_means()
    now_s, waited_s = time.monotonic(), training.waited_s
    elapsed_s, training.window_start_s, training.waited_s = (
        now_s - training.window_start_s,
        now_s,
        0.0,
    )
    if outputs is None:
        return
    log, bar = outputs
    epoch = training.step / job.feed.plan.steps_per_epoch
    metrics = {
        "learning_rate": training.optimizer.param_groups[0]["lr"],
        "epoch": epoch,
        "images_per_s": bar.rate,
        "data_share": 100 * waited_s / max(elapsed_s, 1e-9),
    }
    log.write(training.step, means | metrics)
    bar.subject = f"{job.name}  epoch {epoch:.2f}  loss {means['loss']:.4f}"


def begin_step(job: Job, training: Training) -> float:
    """Seed the next step and set its learning rates; return the run's fraction after its unit."""
    recipe, step = job.recipe, training.step
    # methods may draw random numbers: the same on every process and after a resume
    torch.manual_seed(job.feed.plan.seed * 1_000_003 + step)
    fraction_before, fraction_after = _shares(job, step)
    learning_rate = scheduled_rate(recipe, step / job.num_steps, fraction_before)
    for group in training.optimizer.param_groups:
        group["lr"] = recipe.learning_rate if group["fixed_rate"] else learning_rate
    training.method.metrics_read = job.is_read_step(step + 1)
    return fraction_after


def training_step(job: Job, training: Training, network: nn.Module, batch: Batch) -> None:
    """Take one optimizer step.

    The loop itself never waits for the device; only a method may.
    """
    fraction_after = begin_step(job, training)
    device = job.process.device.type
    with torch.autocast(device, torch.bfloat16, enabled=job.dtype == torch.bfloat16):
        metrics = network(batch.views, fraction_after, *batch.extras)
    training.optimizer.zero_grad(set_to_none=True)
    metrics["loss"].backward()
    # None, not zeros: with zero gradients, weight decay and momentum still move the weights
    for parameter, fraction in training.frozen_until:
        if fraction_after <= fraction:
            parameter.grad = None
    training.optimizer.step()
    training.method.after_step(training.step / job.num_steps)
    training.window.add(metrics)
    training.step += 1


def _shares(job: Job, step: int) -> tuple[float, float]:
    """Return the run's fraction before and after the unit that contains `step`.

    The unit is an epoch or a step, as in the recipe.
    """
    unit = job.feed.plan.steps_per_epoch if job.recipe.schedule_unit == "epoch" else 1
    start = step // unit * unit
    return start / job.num_steps, min(start + unit, job.num_steps) / job.num_steps


def wrap_network(job: Job, method: nn.Module) -> nn.Module:
    """Return the method, compiled if requested, with DDP if distributed.

    DDP averages the gradients over processes.
    """
    if job.command.execution.compile:
        compile_networks(job.method, by_stage=job.process.num_processes > 1)
    if job.process.num_processes == 1:
        return method
    return data_parallel(method, job.process.device)


def _require_finite(job: Job, training: Training) -> None:
    """Raise NotFiniteError if a loss on any process is not finite.

    All processes call it at the same steps, since a bad loss of one spoils the weights of all.
    """
    bad_step = training.window.first_nonfinite_step()
    if not any(any_process([bad_step is not None], job.process)):
        return
    location = "of another process is not finite near" if bad_step is None else "is not finite at"
    step = training.step - len(training.window) + (bad_step or 0) + 1
    raise _not_finite(job, f"the loss of method {job.recipe.method} {location} step {step}")


def _require_whitened(job: Job, training: Training) -> None:
    """Raise NotFiniteError if no batch of a complete window could be whitened.

    A failed batch has loss 0, which would look like a perfect one.
    """
    num_steps = len(training.window)
    if num_steps < min(job.command.execution.read_every_steps, job.num_steps):
        return  # the last window may be short
    if any(any_process([not training.window.all_whitening_failed()], job.process)):
        return
    first_step = training.step - num_steps + 1
    steps = f"step {first_step}" if num_steps == 1 else f"steps {first_step} to {training.step}"
    raise NotFiniteError(
        f"{job.name}: no batch of {steps} of {job.num_steps} could be "
        f"whitened: no covariance has a Cholesky factor, as when all images or embeddings are "
        f"equal. The loss of method {job.recipe.method} is then 0, and nothing is learned. Look at "
        f"{job.command.out / 'views.jpg'}, or start again in another --out with a larger --ridge "
        f"or a larger --batch-size"
    )


def find_problem(training: Training) -> str:
    """Return why a state is useless, or "".

    Tensors may be huge, or features not finite. Checks weights, batch norm statistics, momenta, and
    the features of a fixed image. The loss of a step says nothing about the weights after it, and a
    method that normalizes may hide an overflow.
    """
    method = training.method
    tensors = dict[str, Tensor](training.method.named_parameters())
    tensors |= {name: value for name, value in method.named_buffers() if ".running_" in name}
    for name, weight in method.named_parameters():
        momentum = training.optimizer.state.get(weight, {}).get("momentum_buffer")
        if momentum is not None:  # missing before the first step and for frozen weights
            tensors[f"the momentum of {name}"] = momentum
    largest = torch.stack(torch._foreach_norm(list(tensors.values()), torch.inf))
    for index in (~(largest < LIMIT)).nonzero().flatten():
        return f"{list(tensors)[index]} reaches {largest[index].item():.3g}"
    size_px = training.job.recipe.views.size_px
    image = torch.linspace(-2, 2, 3 * size_px**2, device=largest.device)
    # do not compile the network for a single image
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        features = method.backbone.eval()(image.view(1, 3, size_px, size_px))
    method.backbone.train()
    return "" if features.isfinite().all() else "the features of an image are not finite"


def _not_finite(job: Job, problem: str) -> NotFiniteError:
    """Return the error, which names the last good checkpoint and a remedy."""
    options = "a lower --learning-rate"
    if job.dtype != torch.float32:
        options += " or --precision float32"
    advice = f"Start again with {options}"
    if job.checkpoint_path.exists():
        advice = (
            f"Resuming it with these settings would repeat the same steps: start again with "
            f"{options} in another --out"
        )
    return NotFiniteError(
        f"{job.name}: {problem} of {job.num_steps}; {_last_checkpoint(job)}. {advice}"
    )


def _last_checkpoint(job: Job) -> str:
    path = job.checkpoint_path
    return f"the last good checkpoint is {path}" if path.exists() else "no checkpoint was saved yet"
