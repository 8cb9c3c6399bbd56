"""The only pre-training loop.

A run is a sequence of steps counted from 0. A step depends only on its number, the seed and the
state before it, so a resumed run equals one that never stopped.
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
from pretrain.metrics import Log, Window, write_view_sheet
from pretrain.optim import build_optimizer, scheduled_rate
from pretrain.parts.resnet import BranchedResNet
from pretrain.running import stop
from pretrain.running.console import Progress, print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import any_process
from pretrain.running.torch_versions import compile_module, data_parallel


def compile_networks(method: Method, *, by_stage: bool = False, backend: str = "inductor") -> None:
    """Compile the backbones of a method and its momentum encoder, each when it is first called.

    by_stage: each of their four stages, so that DDP can send the gradients of the last one while
    those of the others are computed.
    """
    parts: list[nn.Module] = []
    for module in method.modules():
        # methods call trunk and heads, not the module, so only its stages can be compiled
        if isinstance(module, BranchedResNet):
            parts += module.layer1, module.layer2, module.layer3, *module.layer4
        elif by_stage and isinstance(module, ResNet):
            parts += module.layer1, module.layer2, module.layer3, module.layer4
        elif isinstance(module, type(method.backbone)):
            parts.append(module)
    for part in parts:
        compile_module(part, backend=backend)


LIMIT = torch.finfo(torch.float32).max ** 0.5
"""Size of a number whose square is none in float32, so that norms and variances are lost."""


class Training:
    """State of a run: networks, optimizer, step, unread metrics."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.method = job.method.to(job.process.device).train()
        # views have one or two sizes, for which cudnn measures its algorithms once
        torch.backends.cudnn.benchmark = job.process.device.type == "cuda"
        self.method = self.method.to(memory_format=torch.channels_last)
        self.optimizer = build_optimizer(self.method, job.recipe)
        # every name is looked up, even if its share of the run is over, so that a wrong one fails
        self.frozen_until = [
            (self.method.get_parameter(name), share)
            for name, share in job.method.frozen_until.items()
        ]
        self.step = 0
        self.window = Window()
        self.window_start_s = time.monotonic()
        self.waited_s = 0.0
        """Time since the start of the window in which the training waited for batches."""

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
    """Run or resume until the last step or a request to stop; return the number of finished steps.

    Raises a NotFiniteError when a loss is not finite; the last checkpoint was saved before it.
    """
    training, is_main = Training(job), job.process.is_main
    state = checkpoint.load(job.checkpoint_path, job.settings, job.published)
    if state is not None:
        training.load_state_dict(state)
        if problem := find_problem(training):
            raise checkpoint.CheckpointError(
                f"{job.checkpoint_path} is of no use: {problem}; delete it to train anew"
            )
        if is_main:
            print_line(
                f"resuming {job.checkpoint_path} after step {training.step} of {job.num_steps}"
            )
        del state  # a copy of all weights and momenta
    _require_same_step(job, training.step)
    if is_main and training.step == 0:
        if num_removed := remove_earlier_snapshots(job):
            folder = job.command.out / "snapshots"
            print_line(f"note: {num_removed} snapshots of an earlier run are removed from {folder}")
        if job.is_snapshot_step(0):
            write_snapshot(job, 0)
    batches = job.feed.batches(training.step, job.num_steps)
    with closing(batches), ExitStack() as stack:
        told = None
        if is_main:
            log = Log(job.command.out, training.step, job.command.wandb, job.settings)
            stack.enter_context(closing(log))
            size = job.recipe.batch_size
            shown = progress("train", job.name, job.num_steps * size, done=training.step * size)
            told = log, stack.enter_context(shown)
        _take_steps(job, training, told, batches)
    return training.step


def _require_same_step(job: Job, step: int) -> None:
    """Raise CheckpointError unless all processes start after one step."""
    steps = [step] * job.process.num_processes
    if len(steps) > 1:
        dist.all_gather_object(steps, step)
    if len(set(steps)) > 1:
        raise checkpoint.CheckpointError(
            f"the processes start after different steps, in their order {steps}; --out must be one "
            "folder that all nodes see"
        )


Told = tuple[Log, Progress] | None
"""Log and progress of the main process; the others have none."""


def _take_steps(job: Job, training: Training, told: Told, batches: Iterator[Batch]) -> None:
    """Train, log, and write snapshots and checkpoints."""
    network = wrap_network(job, training.method)
    is_main = job.process.is_main
    saved_s = time.monotonic()
    stopping = False
    while training.step < job.num_steps and not stopping:
        asked_s = time.monotonic()
        batch = next(batches)
        training.waited_s += time.monotonic() - asked_s
        if training.step == 0 and is_main:
            write_view_sheet(
                job.command.out, batch.views, job.recipe.views.mean, job.recipe.views.std
            )
        training_step(job, training, network, batch)
        stop.note_step()
        reading = job.is_read_step(training.step)
        # processes agree on a stop only where they wait for the device anyway
        if reading or job.process.num_processes == 1:
            (stopping,) = any_process([stop.is_requested()], job.process)
        # clocks differ between processes: with `reading`, all have checked before the first saves
        due = reading and time.monotonic() - saved_s > 60 * job.command.execution.save_every_min
        ending = stopping or training.step == job.num_steps
        saving = due or ending
        is_snapshot = job.is_snapshot_step(training.step)
        # weights that a bad loss has touched must not replace a good checkpoint
        if reading or ending or is_snapshot:
            _require_finite(job, training)
        if reading:
            _require_whitened(job, training)
        if told is not None:
            told[1].add(job.recipe.batch_size)
        if reading:
            _read(job, training, told)
        if (saving or is_snapshot) and is_main and (problem := find_problem(training)):
            raise _not_finite(job, f"{problem} after step {training.step}")
        # before the checkpoint, so that a resumed run repeats an interrupted snapshot
        if is_main and is_snapshot:
            write_snapshot(job, training.step)
        if saving:
            saved_s = time.monotonic()
        if saving and is_main:
            state = training.state_dict() | {"settings": job.settings}
            checkpoint.save(job.checkpoint_path, state)


def _read(job: Job, training: Training, told: Told) -> None:
    """Empty the window; write its means to the log, and the loss to the console."""
    means = training.window.take_means()
    now_s, waited_s = time.monotonic(), training.waited_s
    elapsed_s, training.window_start_s, training.waited_s = (
        now_s - training.window_start_s,
        now_s,
        0.0,
    )
    if told is None:
        return
    log, shown = told
    epoch = training.step / job.feed.plan.steps_per_epoch
    rates = {
        "learning_rate": training.optimizer.param_groups[0]["lr"],
        "epoch": epoch,
        "images_per_s": shown.rate,
        "data_share": 100 * waited_s / max(elapsed_s, 1e-9),
    }
    log.write(training.step, means | rates)
    shown.subject = f"{job.name}  epoch {epoch:.2f}  loss {means['loss']:.4f}"


def training_step(job: Job, training: Training, network: nn.Module, batch: Batch) -> None:
    """Take one optimizer step; what waits for the device in it is a method's, never the loop's."""
    recipe, step = job.recipe, training.step
    # methods may draw random numbers, the same on every process and after a resume
    torch.manual_seed(job.feed.plan.seed * 1_000_003 + step)
    started, ended = _shares(job, step)
    rate = scheduled_rate(recipe, step / job.num_steps, started)
    for group in training.optimizer.param_groups:
        group["lr"] = recipe.learning_rate if group["fixed_rate"] else rate
    device = job.process.device.type
    training.method.metrics_read = job.is_read_step(step + 1)
    with torch.autocast(device, torch.bfloat16, enabled=job.dtype == torch.bfloat16):
        metrics = network(batch.views, ended, *batch.extras)
    training.optimizer.zero_grad(set_to_none=True)
    metrics["loss"].backward()
    # None, not zeros: at a gradient of zeros, decay and momentum still move the weights
    for parameter, share in training.frozen_until:
        if ended <= share:
            parameter.grad = None
    training.optimizer.step()
    training.method.after_step(step / job.num_steps)
    training.window.add(metrics)
    training.step += 1


def _shares(job: Job, step: int) -> tuple[float, float]:
    """Return the shares of the run before and after the epoch, or step, that contains `step`."""
    unit = job.feed.plan.steps_per_epoch if job.recipe.schedule_unit == "epoch" else 1
    start = step // unit * unit
    return start / job.num_steps, min(start + unit, job.num_steps) / job.num_steps


def wrap_network(job: Job, method: nn.Module) -> nn.Module:
    """Return the method, compiled if the job says so, whose gradients are means over processes."""
    if job.command.execution.compile:
        compile_networks(job.method, by_stage=job.process.num_processes > 1)
    if job.process.num_processes == 1:
        return method
    return data_parallel(method, job.process.device)


def _require_finite(job: Job, training: Training) -> None:
    """Raise a NotFiniteError if a loss of the window is not finite on any process.

    All processes call it at the same steps: a bad loss of one spoils the weights of all.
    """
    bad = training.window.first_bad_step()
    if not any(any_process([bad is not None], job.process)):
        return
    where = "of another process is not finite near" if bad is None else "is not finite at"
    step = training.step - len(training.window) + (bad or 0) + 1
    raise _not_finite(job, f"the loss of method {job.recipe.method} {where} step {step}")


def _require_whitened(job: Job, training: Training) -> None:
    """Raise a NotFiniteError if nothing could be whitened in a whole window on any process.

    A loss of zero, which stands for a failed batch, would look like a perfect one.
    """
    num_steps = len(training.window)
    if num_steps < min(job.command.execution.read_every_steps, job.num_steps):
        return  # the last window may be short
    if any(any_process([not training.window.is_unwhitened()], job.process)):
        return
    first = training.step - num_steps + 1
    steps = f"step {first}" if num_steps == 1 else f"steps {first} to {training.step}"
    raise NotFiniteError(
        f"{job.name}: no batch of {steps} of {job.num_steps} could be "
        f"whitened: no covariance has a Cholesky factor, as when all images or embeddings are "
        f"alike. The loss of method {job.recipe.method} is then 0, and nothing is learned. Look at "
        f"{job.command.out / 'views.jpg'}, or start anew in another --out with a larger --ridge or "
        f"a larger --batch-size"
    )


def find_problem(training: Training) -> str:
    """Return what makes a state useless, else "": a huge tensor, or features that are not finite.

    Examined are weights, statistics of norms, momenta, and the features of a fixed image. A loss
    says nothing of the weights after its step, and a method may not see an overflow in what it
    normalizes.
    """
    method = training.method
    tensors = dict[str, Tensor](training.method.named_parameters())
    tensors |= {name: value for name, value in method.named_buffers() if ".running_" in name}
    for name, weight in method.named_parameters():
        momentum = training.optimizer.state.get(weight, {}).get("momentum_buffer")
        if momentum is not None:  # before the first step, and for what is frozen, there is none
            tensors[f"the momentum of {name}"] = momentum
    largest = torch.stack(torch._foreach_norm(list(tensors.values()), torch.inf))
    for place in (~(largest < LIMIT)).nonzero().flatten():
        return f"{list(tensors)[place]} reaches {largest[place].item():.3g}"
    size_px = training.job.recipe.views.size_px
    image = torch.linspace(-2, 2, 3 * size_px**2, device=largest.device)
    # one image is not worth a build of compiled networks
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        features = method.backbone.eval()(image.view(1, 3, size_px, size_px))
    method.backbone.train()
    return "" if features.isfinite().all() else "the features of an image are not finite"


def _not_finite(job: Job, what: str) -> NotFiniteError:
    """Return the error with the last good checkpoint and what helps."""
    options = "a lower --learning-rate"
    if job.dtype != torch.float32:
        options += " or --precision float32"
    advice = f"Start anew with {options}"
    if job.checkpoint_path.exists():
        advice = (
            f"It belongs to these settings, and the same steps would follow it: start anew with "
            f"{options} in another --out"
        )
    return NotFiniteError(
        f"{job.name}: {what} of {job.num_steps}; {_kept_checkpoint(job)}. {advice}"
    )


def _kept_checkpoint(job: Job) -> str:
    path = job.checkpoint_path
    return f"the last good checkpoint is {path}" if path.exists() else "no checkpoint was saved yet"
