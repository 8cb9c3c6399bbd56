"""Runs with workers end by an error, a killed worker, or request."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-m", "pretrain")
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    *("-m", "pretrain"),
)
LAUNCHERS = pytest.mark.parametrize("launcher", [PYTHON, TORCHRUN], ids=["one", "two"])
pytestmark = pytest.mark.slow


def start(launcher: tuple[str, ...], images: Path, *options: str) -> subprocess.Popen[str]:
    """Start a run with two workers per process, in another process group."""
    args = [*launcher, "moco/smoke", "--data", str(images), "--out", str(images.parent / "run")]
    args += ["--memory-gb", "0", "--workers", "2", "--batch-size", "4", "--device", "cpu"]
    return subprocess.Popen(
        [*args, "--size-px", "16", "--read-every-steps", "1", "--bn-splits", "1", *options],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_steps(run: subprocess.Popen[str], images: Path) -> None:
    log = images.parent / "run" / "metrics.jsonl"
    deadline_s = time.monotonic() + 200
    while not (log.exists() and log.read_text()):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def processes(images: Path) -> dict[int, int]:
    """Parents of the processes of a run, by process.

    Torchrun's processes have separate sessions.
    """
    result = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if str(images.parent) in (folder / "cmdline").read_text():
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                result[int(folder.name)] = int(stat[1])
    return result


def a_worker(images: Path) -> int:
    """A process without children, of a run that is training."""
    parents = processes(images)
    return max(process for process in parents if process not in parents.values())


@LAUNCHERS
def test_an_error_of_the_loop_ends_the_run_with_its_reason(
    image_folder: Path, launcher: tuple[str, ...]
) -> None:
    run = start(launcher, image_folder, "--learning-rate", "1e30")
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 1
    assert "\nerror: moco/smoke: " in errors
    assert "a lower --learning-rate" in errors
    assert processes(image_folder) == {}


@LAUNCHERS
def test_a_killed_worker_ends_the_run_with_its_reason(
    image_folder: Path, launcher: tuple[str, ...]
) -> None:
    run = start(launcher, image_folder, "--epochs", "4000")
    wait_for_steps(run, image_folder)
    os.kill(a_worker(image_folder), signal.SIGKILL)
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 1
    reason = "(killed by SIGKILL), most likely because memory ran out"
    assert reason in errors
    # torch's error about the lost process may follow, from the other process
    assert "Traceback" not in errors.partition(reason)[0]
    assert processes(image_folder) == {}


@LAUNCHERS
def test_the_last_line_of_a_stopped_run_tells_how_to_go_on(
    image_folder: Path, launcher: tuple[str, ...]
) -> None:
    run = start(launcher, image_folder, "--epochs", "4000")
    wait_for_steps(run, image_folder)
    os.killpg(run.pid, signal.SIGTERM)
    output, errors = run.communicate(timeout=200)
    assert run.returncode == (75 if launcher == PYTHON else 1)  # torchrun knows no other
    assert "stopped by SIGTERM" in output
    text = "stopped by SIGTERM. Run the same command to resume"
    (last,) = (line for line in errors.splitlines() if text in line)
    assert str(image_folder.parent / "run" / "checkpoint.pt") in last
    assert processes(image_folder) == {}


def test_a_process_whose_partner_is_killed_ends_with_an_error(image_folder: Path) -> None:
    run = start(TORCHRUN, image_folder, "--epochs", "4000")
    wait_for_steps(run, image_folder)
    parents = processes(image_folder)
    ranks = [process for process, parent in parents.items() if parent == run.pid]
    os.kill(max(ranks), signal.SIGKILL)
    _, errors = run.communicate(timeout=200)
    assert run.returncode == 1
    assert "error: " in errors
    assert "SIGKILL" in errors  # torchrun names the process that ended first
    assert processes(image_folder) == {}
