"""Measure the speed of this machine's GPU: python -m benchmarks.gpu_check.

It measures training steps of published recipes, features, a linear probe and fine-tuning steps. The
page is updated after each measurement, so that an interrupted run keeps its results. Plans then use
these numbers. Evaluations are measured in a separate process: they limit the workspace of
convolutions, pre-training does not, and cudnn may read the limit only once. `pytest -m gpu` tests
the results of GPU computations; `make gpu-check` runs both. On a CPU, everything is measured at a
tiny size, and the page is written to --runs.
"""

import gc
import os
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
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
from pretrain.running.source import commit
from transfer.hours import Measured, measured_seconds, save_seconds

PER_IMAGE = "s per image, "
"""Prefix of quantities that plans use; then a key of `transfer.hours`."""
INTRODUCTION = (
    "Throughput of this machine's GPU, measured by `make gpu-check`, which also tests that the GPU "
    "and the CPU give equal results. Images are generated."
)
Quantities = Mapping[str, Any]
"""Measured numbers by name; {"failed": reason} for a measurement that failed."""
STEP = "step of "
"""Prefix of the names of pre-training steps."""
COLUMNS = (
    "images/s",
    "times the floor",
    "times the plain step",
    "times the plain step, at the floor",
    "workers needed",
    "hours of the recipe on this device alone",
)
"""Quantities in the table of steps."""


@dataclass(frozen=True, kw_only=True)
class GPUCheckOptions:
    """Measure this machine's GPU."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: the GPU, if there is one."""
    only: tuple[str, ...] = ()
    """Names of measurements, or parts of names. Default: all."""
    runs: Path = Path("runs")
    """Folder for the measured seconds, as passed to run_all."""
    results: Path = Path("results")
    """Folder for the page gpu_check.md."""


def run(request: GPUCheckOptions) -> int:
    """Measure and write the page and the seconds; return the exit status.

    OptionError for an unknown measurement, or if there is no GPU for --device cuda.
    """
    import torch

    if find_spec("cv2") is None:
        raise OptionError("pre-training needs OpenCV: pip install opencv-python-headless")
    from benchmarks.gpu import evaluation, pretraining
    from benchmarks.gpu.fused import fused_throughput

    has_gpu = torch.cuda.is_available()
    if request.device == "cuda" and not has_gpu:
        raise OptionError("--device cuda: no CUDA device on this machine. Pass --device cpu")
    device = torch.device("cuda" if has_gpu and request.device != "cpu" else "cpu")
    trainings = {
        "kernels of batch norm": pretraining.norm_kernels,
        **{STEP + name: call for name, call in pretraining.STEPS.items()},
        **{f"feeding {name}": call for name, call in pretraining.FEEDS.items()},
    }
    evaluations = {
        "fused convolutions": fused_throughput,
        **{f"features of {name}": call for name, call in evaluation.FEATURES.items()},
        "linear probe": evaluation.probe_throughput,
        "one core": evaluation.core_throughput,
        **{f"fine-tuning of {name}": call for name, call in evaluation.TRAININGS.items()},
    }
    measurements = {**trainings, **evaluations}
    for text in request.only:
        if not any(text in name for name in measurements):
            raise OptionError(f"--only {text}: did you mean {nearest(text, measurements)}?")
    selected = [
        name
        for name in measurements
        if not request.only or any(text in name for text in request.only)
    ]
    page = (request.runs if device.type == "cpu" else request.results) / "gpu_check.md"
    quantities_by_name: dict[str, Quantities] = {}
    with ExitStack() as stack:
        pool = stack.enter_context(evaluation_process())
        for name in selected:
            started_s = time.monotonic()
            try:
                if name in evaluations:
                    future = pool.submit(measure, evaluations[name], device)
                    quantities_by_name[name] = future.result()
                else:
                    quantities_by_name[name] = measure(trainings[name], device)
            except Exception as error:  # the page shows the error; other measurements continue
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                quantities_by_name[name] = {"failed": reason}
                if isinstance(error, BrokenExecutor):  # the process has ended
                    pool = stack.enter_context(evaluation_process())
            free_memory()
            duration_s = time.monotonic() - started_s
            print(f"{name}: {duration_s:.1f} s  {quantities_by_name[name].get('failed', '')}")
            text = render(describe_machine(device), quantities_by_name)
            write_whole(page, text.encode(), "--results")
            if device.type == "cuda":
                seconds = seconds_of(quantities_by_name)
                add_seconds(request.runs, torch.cuda.get_device_name(device), seconds)
    failed = sum("failed" in quantities for quantities in quantities_by_name.values())
    print(f"{failed} of {len(quantities_by_name)} failed  ->  {page}")
    return 1 if failed else 0


def evaluation_process() -> ProcessPoolExecutor:
    """Return one process, which the first evaluation starts."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=set_up_evaluations)


def set_up_evaluations() -> None:
    """Set the environment of evaluations, before the first convolution and before CUDA starts."""
    from transfer.finetuning.loop import use_expandable_segments
    from transfer.frozen.network import limit_workspaces

    limit_workspaces()
    use_expandable_segments()  # as in trainings of detectors


def measure(call: Callable[[Any, Path], Quantities], device: Any) -> Quantities:
    """Return the quantities of one measurement."""
    import torch

    free_memory()
    torch.backends.cudnn.benchmark = False  # pre-training sets it for its whole process
    with tempfile.TemporaryDirectory() as folder:
        return call(device, Path(folder))


def free_memory() -> None:
    """Free the memory that an earlier measurement of this process has left."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def describe_machine(device: Any) -> str:
    """Return hardware, software, commit and date in one line."""
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


def render(machine: str, quantities_by_name: Mapping[str, Quantities]) -> str:
    """Return the page in Markdown."""
    steps = [
        [name.removeprefix(STEP), *(_text(quantities.get(column)) for column in COLUMNS)]
        for name, quantities in quantities_by_name.items()
        if name.startswith(STEP)
    ]
    rows = [
        [name, quantity, _text(value)]
        for name, quantities in quantities_by_name.items()
        for quantity, value in quantities.items()
    ]
    page: Page = ["# GPU rates", INTRODUCTION, f"{machine}.", grid(["method", *COLUMNS], steps)]
    table = grid(["measurement", "quantity", "value"], rows, num_left=2)
    return markdown([*page, "## All quantities", table])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds_of(quantities_by_name: Mapping[str, Quantities]) -> dict[str, float]:
    """Return the measured seconds per image, with the keys of `transfer.hours`."""
    return {
        quantity.removeprefix(PER_IMAGE): value
        for quantities in quantities_by_name.values()
        for quantity, value in quantities.items()
        if quantity.startswith(PER_IMAGE)
    }


def add_seconds(runs: Path, gpu: str, seconds: Mapping[str, float]) -> None:
    """Save seconds for plans; keep earlier ones of the same GPU model."""
    if not seconds:
        return
    earlier = Measured()
    with suppress(ValueError):  # a damaged file is replaced
        earlier = measured_seconds(runs)
    merged = {**(earlier.seconds if earlier.gpu == gpu else {}), **seconds}
    date = time.strftime("%Y-%m-%d")
    save_seconds(runs, Measured(gpu=gpu, date=date, commit=commit(), seconds=merged))


@one_line_errors(OptionError)
def main(args: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run(parse(GPUCheckOptions, args, description=__doc__))


if __name__ == "__main__":
    run_command(main)
