"""python -m benchmarks.gpu_check: how fast this machine's GPU is, on one page.

Measures training steps of published recipes, features, a linear probe and fine-tuning steps, one
after the other, and renews the page after each, so that an interrupted run keeps what it measured.
Plans then use these numbers. What a GPU must compute is tested by `pytest -m gpu`; `make gpu-check`
runs both. On a CPU everything is measured at a tiny size, and the page is written below --runs.
"""

import gc
import os
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from benchmarks.results.tables import Page, grid, markdown
from pretrain.running.atomic_files import write_whole
from pretrain.running.command_line import (
    OptionError,
    nearest,
    one_line_errors,
    parse,
    run_command,
)
from transfer.hours import Measured, measured_seconds, save_seconds
from transfer.record import commit

INTRODUCTION = (
    "Rates of this machine's GPU, measured by `make gpu-check`, which also tests that the GPU "
    "computes what the CPU does. Images are generated."
)
STEP, FEATURES, PROBE, TRAINING = "step of ", "features of ", "linear probe", "fine-tuning of "
CORE = "one core"
FUSED = "fused convolutions"
NORM = "kernels of batch norm"
"""Starts of the names of measurements."""

Facts = Mapping[str, Any]
"""Measured numbers by name; {"failed": reason} for a measurement that failed."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Measure this machine's GPU."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: the GPU if there is one."""
    only: tuple[str, ...] = ()
    """Names, or parts of names, of the measurements to make; all if not given."""
    runs: Path = Path("runs")
    """Folder in which plans look for the measured seconds."""
    results: Path = Path("results")
    """Folder of the page gpu_check.md."""


def run(request: Request) -> int:
    """Measure, write the page and the seconds for plans; return the exit status.

    OptionError if a GPU is asked for and there is none, or for an unknown measurement.
    """
    import torch

    if find_spec("cv2") is None:
        raise OptionError("it pre-trains, which needs OpenCV: pip install opencv-python-headless")
    from benchmarks.gpu import evaluation, pretraining
    from benchmarks.gpu.fused import fused_rate
    from transfer.finetuning.loop import limit_workspaces, use_expandable_segments

    has_gpu = torch.cuda.is_available()
    if request.device == "cuda" and not has_gpu:
        raise OptionError("--device cuda: no CUDA device on this machine. Pass --device cpu")
    device = torch.device("cuda" if has_gpu and request.device != "cpu" else "cpu")
    measurements = {
        NORM: pretraining.norm_kernels,
        FUSED: fused_rate,
        **{STEP + name: call for name, call in pretraining.STEPS.items()},
        **{FEATURES + name: call for name, call in evaluation.FEATURES.items()},
        PROBE: evaluation.probe_rate,
        CORE: evaluation.core_rates,
        **{TRAINING + name: call for name, call in evaluation.TRAININGS.items()},
    }
    for word in request.only:
        if not any(word in name for name in measurements):
            raise OptionError(f"--only {word}: did you mean {nearest(word, measurements)}?")
    chosen = [n for n in measurements if not request.only or any(w in n for w in request.only)]
    limit_workspaces()  # as trainings do; before the first convolution
    use_expandable_segments()  # as those of detectors do
    page = (request.runs if device.type == "cpu" else request.results) / "gpu_check.md"
    answers: dict[str, Facts] = {}
    for name in chosen:
        started_s = time.monotonic()
        torch.backends.cudnn.benchmark = False  # pre-training sets it for its whole process
        with tempfile.TemporaryDirectory() as folder:
            try:
                answers[name] = measurements[name](device, Path(folder))
            except Exception as error:  # the other measurements go on, and the page says why
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                answers[name] = {"failed": reason}
        print(f"{name}: {time.monotonic() - started_s:.1f} s  {complaint(answers[name])}")
        not_run = [other for other in measurements if other not in answers]
        text = render(describe_machine(device), answers, not_run)
        write_whole(page, text.encode(), "--results")
        if device.type == "cuda":
            add_seconds(request.runs, torch.cuda.get_device_name(device), seconds_of(answers))
        gc.collect()
        torch.cuda.empty_cache()
    failed = sum(bool(complaint(facts)) for facts in answers.values())
    print(f"{failed} of {len(answers)} failed  ->  {page}")
    return 1 if failed else 0


def describe_machine(device: Any) -> str:
    """Return the GPUs (or the processor), software, commit and date in one line."""
    import torch

    software = f"torch {torch.__version__}"
    if device.type == "cuda":
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        software += f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    else:
        names = [f"CPU, {torch.backends.cpu.get_cpu_capability()}"]
    listed = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in Counter(names).items())
    cores = len(os.sched_getaffinity(0))
    return f"{listed}; {cores} cores; {software}; commit {commit()}; {time.strftime('%Y-%m-%d')}"


def complaint(facts: Facts) -> str:
    """Return why a measurement failed: an error, or a step that needs less memory than estimated.

    The estimate of a step is meant to be a lower bound.
    """
    if "failed" in facts:
        return str(facts["failed"])
    peak, least = facts.get("peak memory GB", 0.0), facts.get("estimated memory GB", 0.0)
    if 0 < peak < least:  # a CPU's is not measured
        return f"peak memory {peak:.3g} GB, less than the estimate of {least:.3g}"
    return ""


def render(machine: str, answers: Mapping[str, Facts], not_run: list[str]) -> str:
    """Return the page in markdown."""
    columns = (
        "images/s",
        "times the floor",
        "times the plain step",
        "times the plain step, at the floor",
        "workers needed",
        "hours of the recipe on this device alone",
    )
    methods = [
        [name.removeprefix(STEP), *(_text(facts.get(column)) for column in columns)]
        for name, facts in answers.items()
        if name.startswith(STEP)
    ]
    problems = [
        f"- {name}: {reason}" for name, facts in answers.items() if (reason := complaint(facts))
    ]
    quantities = [
        [name, quantity, _text(value)]
        for name, facts in answers.items()
        for quantity, value in facts.items()
    ]
    page: Page = ["# GPU rates", INTRODUCTION, f"{machine}.", grid(["method", *columns], methods)]
    if problems:
        page += ["## Failed", "\n".join(problems)]
    if not_run:
        page += ["## Not run", ", ".join(not_run)]
    table = grid(["measurement", "quantity", "value"], quantities, num_left=2)
    return markdown([*page, "## All quantities", table])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_of(answers: Mapping[str, Facts]) -> dict[str, float]:
    """Return the measured seconds per image by kind of work, as `transfer.hours` names it."""
    seconds: dict[str, float] = {}
    for name, facts in answers.items():
        if name.startswith(FEATURES) and "images/s" in facts:
            arch, precision = name.removeprefix(FEATURES).split(" in ")
            seconds[f"forward {arch} {precision}"] = 1 / facts["images/s"]
        elif name == PROBE and "crops/s" in facts:
            seconds["crop"] = 1 / facts["crops/s"]
        elif name == CORE and "failed" not in facts:
            rates = {work.removesuffix(", images/s"): rate for work, rate in facts.items()}
            seconds |= {work: 1 / rate for work, rate in rates.items()}
        elif name.startswith(TRAINING):
            for precision in ("float32", "bfloat16"):
                iteration = facts.get(f"seconds per iteration in {precision}")
                if iteration is not None:
                    images = facts[f"images per pass in {precision}"]
                    seconds[f"{name.removeprefix(TRAINING)} {precision}"] = iteration / images
    return seconds


def add_seconds(runs: Path, gpu: str, seconds: Mapping[str, float]) -> None:
    """Save seconds for plans, beside those that were measured before on the same kind of GPU."""
    if not seconds:
        return
    before = Measured()
    with suppress(ValueError):  # a damaged file
        before = measured_seconds(runs)
    known = before.seconds if before.gpu == gpu else {}
    date = time.strftime("%Y-%m-%d")
    save_seconds(runs, Measured(gpu=gpu, date=date, commit=commit(), seconds={**known, **seconds}))


@one_line_errors(OptionError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run(parse(Request, words, description=__doc__))


if __name__ == "__main__":
    run_command(main)
