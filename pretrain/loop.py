"""The only pre-training loop.

A run is a sequence of steps, counted from 0. Each step depends only on its number, the seed and the
state before it, so a resumed run equals an uninterrupted one.
"""

import time
from contextlib import ExitStack, closing
from typing import Any

import torch
from torch import nn
from torchvision.models import ResNet

from pretrain import checkpoint
from pretrain.data.feed import Batch
from pretrain.export import write_snapshot
from pretrain.job import Job
from pretrain.method import Method
from pretrain.metrics import MetricsLog, Window, save_view_grid
from pretrain.optim import build_optimizer, scheduled_rate
from pretrain.parts.resnet import BranchedResNet
from pretrain.running import stop
from pretrain.running.console import Progress, print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.processes import any_process, largest_of_processes
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


class Training:
    """State of a run: networks, optimizer, step, unread metrics."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.method = job.method.to(job.process.device).train()
        # views have only one or two sizes, so cuDNN benchmarks few shapes
        torch.backends.cudnn.benchmark = job.process.device.type == "cuda"
        self.method = self.method.to(memory_format=torch.channels_last)
        self.optimizer = build_optimizer(self.method, job.recipe)
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
        try:
            training.load_state_dict(state)
        except RuntimeError as error:
            raise checkpoint.CheckpointError(
                f"{job.checkpoint_path} has other tensors; it was written by another version. Pass "
                "another --out"
            ) from error
        if is_main:
            print_line(
                f"resuming {job.checkpoint_path} after step {training.step} of {job.num_steps}"
            )
        del state  # free the copy of all weights and momenta
    last, first_negated = largest_of_processes([training.step, -training.step], job.process)
    if last != -first_negated:
        raise checkpoint.CheckpointError(
            f"the processes read {job.checkpoint_path} of different steps, from {-first_negated} "
            f"(0: no checkpoint) to {last}. --out must be a folder that all nodes share"
        )
    if is_main and training.step == 0:
        # snapshots of an earlier run would be mixed with this run's
        for path in (job.command.out / "snapshots").glob("epoch*.pt"):
            path.unlink()
        if job.is_snapshot_step(0):
            write_snapshot(job, 0)
    batches = job.feed.batches(training.step, job.num_steps)
    with ExitStack() as stack:
        stack.enter_context(closing(batches))
        outputs: Outputs = None
        if is_main:
            log = MetricsLog(job.command.out, training.step, job.command.wandb, job.settings)
            stack.enter_context(closing(log))
            size = job.recipe.batch_size
            bar = progress("train", job.name, job.num_steps * size, done=training.step * size)
            outputs = log, stack.enter_context(bar)
        network = wrap_network(job, training.method)
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
            # clocks differ: at a read step, all processes have checked before the first saves
            is_due = is_read_step and time.monotonic() - saved_s > 60 * job.command.save_every_min
            must_save = is_due or stopping or training.step == job.num_steps
            is_snapshot = job.is_snapshot_step(training.step)
            # weights updated by a bad loss must not replace a good checkpoint
            if is_read_step or must_save or is_snapshot:
                _check_losses(job, training)
            if outputs is not None:
                outputs[1].add(job.recipe.batch_size)
            if is_read_step:
                _read(job, training, outputs)
            if (must_save or is_snapshot) and is_main:
                _check_features(job, training)
            # before the checkpoint, so that a resumed run repeats an interrupted snapshot
            if is_main and is_snapshot:
                write_snapshot(job, training.step)
            if must_save:
                saved_s = time.monotonic()
            if must_save and is_main:
                state = training.state_dict() | {"settings": job.settings}
                checkpoint.save(job.checkpoint_path, state)
    return training.step


Outputs = tuple[MetricsLog, Progress] | None
"""Log and progress bar; None except on the main process."""


def _read(job: Job, training: Training, outputs: Outputs) -> None:
    """Log and empty the window, and show the loss."""
    means = training.window.take_means()
    elapsed_s = time.monotonic() - training.window_start_s
    data_share = 100 * training.waited_s / max(elapsed_s, 1e-9)
    training.window_start_s, training.waited_s = time.monotonic(), 0.0
    if outputs is None:
        return
    log, bar = outputs
    epoch = training.step / job.feed.plan.steps_per_epoch
    metrics = {
        "learning_rate": training.optimizer.param_groups[0]["lr"],
        "epoch": epoch,
        "images_per_s": bar.rate,
        "data_share": data_share,
    }
    log.write(training.step, means | metrics)
    bar.subject = f"{job.name}  epoch {epoch:.2f}  loss {means['loss']:.4f}"


def begin_step(job: Job, training: Training) -> float:
    """Seed the next step and set its learning rates; return the fraction of the run.

    It is the fraction at the end of the step, or of the step's epoch if the recipe's schedule
    changes once per epoch.
    """
    recipe, step = job.recipe, training.step
    # methods may draw random numbers: the same on every process and after a resume
    torch.manual_seed(job.feed.plan.seed * 1_000_003 + step)
    unit = job.feed.plan.steps_per_epoch if recipe.schedule_unit == "epoch" else 1
    start = step // unit * unit
    learning_rate = scheduled_rate(recipe, step / job.num_steps, start / job.num_steps)
    for group in training.optimizer.param_groups:
        group["lr"] = recipe.learning_rate if group["fixed_rate"] else learning_rate
    training.method.metrics_read = job.is_read_step(step + 1)
    return min(start + unit, job.num_steps) / job.num_steps


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
    for name, fraction in training.method.frozen_until.items():
        parameter = training.method.get_parameter(name)  # a wrong name fails in the first step
        if fraction_after <= fraction:
            # not zero: with zero gradients, weight decay and momentum still move the weights
            parameter.grad = None
    training.optimizer.step()
    training.method.after_step(training.step / job.num_steps)
    training.window.add(metrics)
    training.step += 1


def wrap_network(job: Job, method: nn.Module) -> nn.Module:
    """Return the method, compiled if requested, with DDP if distributed.

    DDP averages the gradients over processes.
    """
    if job.command.compile:
        compile_networks(job.method, by_stage=job.process.num_processes > 1)
    if job.process.num_processes == 1:
        return method
    return data_parallel(method, job.process.device)


def _check_losses(job: Job, training: Training) -> None:
    """Raise NotFiniteError if the losses of the window are useless.

    Either a loss on any process is not finite, which spoils the weights of all; or no batch of a
    complete window could be whitened. All processes call it at the same steps.
    """
    window = training.window.state_dict()
    losses = window["loss"]
    first_step = training.step - len(losses) + 1
    bad_steps = (~losses.isfinite()).nonzero().flatten().tolist()
    # a batch that cannot be whitened has loss 0, which would look like a perfect one
    failures = window.get("whitening_failures", torch.zeros_like(losses))
    is_whitened = bool(((failures == 0) | (losses != 0)).any())
    # the last window may be short
    is_complete = len(losses) >= min(job.command.read_every_steps, job.num_steps)
    is_bad, is_whitened_somewhere = any_process([bool(bad_steps), is_whitened], job.process)
    if is_bad:
        location = f"at step {first_step + bad_steps[0]}" if bad_steps else "on another process"
        raise _not_finite(job, f"the loss is not finite {location} of {job.num_steps}")
    if is_complete and not is_whitened_somewhere:
        raise NotFiniteError(
            f"{job.name}: no batch of steps {first_step} to {training.step} could be whitened, as "
            f"when all images or embeddings are equal. The loss is then 0, and nothing is learned. "
            f"Look at {job.command.out / 'views.jpg'}, or start again in another --out with a "
            "larger --ridge or --batch-size"
        )


def _check_features(job: Job, training: Training) -> None:
    """Raise NotFiniteError if the features of a fixed image are not finite.

    The loss of a step says nothing about the weights after it, and a method that normalizes may
    hide an overflow.
    """
    backbone, size_px = training.method.backbone, job.recipe.views.size_px
    image = torch.linspace(-2, 2, 3 * size_px**2, device=job.process.device)
    # do not compile the network for a single image
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        features = backbone.eval()(image.view(1, 3, size_px, size_px))
    backbone.train()
    if not features.isfinite().all():
        raise _not_finite(job, f"the features of an image are not finite after {training.step}")


def _not_finite(job: Job, problem: str) -> NotFiniteError:
    options = "a lower --learning-rate"
    if job.dtype != torch.float32:
        options += " or --precision float32"
    return NotFiniteError(
        f"{job.name}: {problem}. A resumed run would repeat the same steps: start again with "
        f"{options} in another --out"
    )
