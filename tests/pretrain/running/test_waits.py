"""A waiting process says so, and a signal ends it with 75."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pretrain.__main__
import transfer.__main__
from benchmarks import run_all
from pretrain.running import stop
from pretrain.running.command_line import exit_status_of
from pretrain.running.processes import LaunchError, LostProcessError, require_launcher

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys, time
import torch
import torch.distributed as dist
from pretrain.running import processes, stop
from pretrain.running.command_line import run_command

processes.FIRST_LINE_S, processes.LINE_INTERVAL_S, stop.WAIT_S = 0.2, 0.2, 1.0
processes.BARRIER_S = {meeting_s}

def main(words):
    stop.listen(twice=False)
    with processes.process_group(cuda=False) as process:
        print("together", flush=True)
        {work}
    return 0

run_command(main)
"""
COLLECTIVE = "dist.all_reduce(torch.ones(1)) if process.is_main else time.sleep(1000)"
BACKWARD = """
        layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        output = layer(torch.ones(1, 2)).sum()
        output.backward() if process.is_main else time.sleep(1000)"""
PREPARATION = """
        if not process.is_main:
            time.sleep(1000)
        processes.wait_for_all("that prepare the data")"""
FAILURE = """
        if not process.is_main:
            raise ValueError("no data here")
        processes.wait_for_all("that prepare the data")"""


def start(body: str, *ranks: int, meeting_s: float = 100.0) -> list[subprocess.Popen[str]]:
    """Start the processes with these ranks, of two."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    program = PROGRAM.format(work=body, meeting_s=meeting_s)
    return [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | meeting | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]


def wait_for(run: subprocess.Popen[str], text: str) -> None:
    assert run.stderr is not None
    while text not in (line := run.stderr.readline()):
        assert line, run.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(
    ("rank", "text"), [(0, "waiting for 1 of 2 processes at 127.0.0.1:"), (1, "process 0 of 2 at ")]
)
def test_signal_ends_the_wait_for_a_missing_process(number: int, rank: int, text: str) -> None:
    (run,) = start("pass", rank)
    wait_for(run, text)
    run.send_signal(number)
    run.communicate(timeout=60)
    assert run.returncode == 75


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_missing_process_is_named_after_minutes(rank: int) -> None:
    (run,) = start("pass", rank, meeting_s=1.0)
    _, errors = run.communicate(timeout=100)
    assert run.returncode == 1
    assert "LostProcessError: waiting for" in errors
    assert "of 2" in errors.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "number"),
    [(COLLECTIVE, signal.SIGTERM), (BACKWARD, signal.SIGINT), (PREPARATION, signal.SIGUSR1)],
    ids=["collective", "backward", "preparation"],
)
def test_signal_ends_the_wait_for_a_hanging_process(body: str, number: int) -> None:
    waiting, hanging = start(body, 0, 1)
    for run in (waiting, hanging):
        assert run.stdout is not None
        assert run.stdout.readline() == "together\n"
    hanging.send_signal(signal.SIGSTOP)
    time.sleep(1)  # for the first one to be in its wait
    waiting.send_signal(number)
    assert waiting.wait(60) == 75
    hanging.kill()
    last = waiting.communicate()[1].splitlines()[-1]
    assert last == f"stopped by {signal.Signals(number).name}. Run the same command to resume"
    hanging.communicate()


def test_second_signal_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    with stop.end_of_waits(spinning=False):
        for _ in range(2):  # torchrun sends each signal twice
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.1)
    signal.signal(signal.SIGTERM, previous)
    assert capfd.readouterr().err == ""


def test_lost_process_is_resumable_after_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = LostProcessError("process 0 has lost another process")
    assert (exit_status_of(error), exit_status_of(ValueError())) == (1, 1)
    monkeypatch.setattr(stop, "_received_signals", [signal.SIGTERM])
    assert (exit_status_of(error), exit_status_of(ValueError())) == (75, 1)


@pytest.mark.slow
def test_wait_for_rank_0_is_a_line_per_interval() -> None:
    workspace = (
        "time.sleep(2) if process.is_main else None; processes.wait_for_all('that list images')"
    )
    first, second = start(workspace, 0, 1)
    lines = second.communicate(timeout=100)[1].splitlines()
    lines = [line for line in lines if "waiting for 1 of 2 processes that list images" in line]
    assert len(lines) > 2
    assert (first.wait(60), second.returncode) == (0, 0)
    first.communicate()


@pytest.mark.slow
def test_rank_0_waits_for_minutes_for_a_process_that_has_nothing_to_do() -> None:
    first, second = start(PREPARATION, 0, 1, meeting_s=20.0)
    assert second.stdout is not None
    assert second.stdout.readline() == "together\n"
    second.kill()
    errors = first.communicate(timeout=100)[1]
    assert first.returncode == 1
    assert "LostProcessError: waiting for 1 of 2 processes that prepare the data" in errors
    second.communicate()


@pytest.mark.slow
def test_process_that_fails_ends_the_wait_of_the_others() -> None:
    first, second = start(FAILURE, 0, 1)
    errors = first.communicate(timeout=100)[1]
    assert first.returncode == 1
    assert "process 0 has lost another process of the run" in errors
    second.communicate(timeout=100)


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.isatty", lambda _: False)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_terminal")
@pytest.mark.parametrize(
    ("settings", "launcher"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2"}, "SLURM_STEP_NUM_TASKS is 2, but WORLD_SIZE is not set"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is 2, without RANK, MASTER_ADDR, MASTER_PORT"),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "a"}, "2, without MASTER_PORT: "),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, ""),
        ({"SLURM_NTASKS": "2"}, ""),
        ({"SLURM_STEP_NUM_TASKS": "2", "WORLD_SIZE": "1"}, ""),
        ({"WORLD_SIZE": ""}, ""),
    ],
)
def test_processes_without_a_launcher_are_refused(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], launcher: str
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    if not launcher:
        require_launcher()
        return
    with pytest.raises(LaunchError, match=r"python -m slurm.*torchrun") as error:
        require_launcher()
    assert launcher in str(error.value)


@pytest.mark.usefixtures("no_terminal")
def test_interactive_session_of_slurm_is_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")  # of `srun -n 2 --pty bash`
    monkeypatch.setattr("os.isatty", lambda _: True)
    require_launcher()


@pytest.mark.usefixtures("no_terminal")
@pytest.mark.parametrize(
    ("main", "args"),
    [
        (pretrain.__main__.main, ("moco/smoke", "--out", "{}/out")),
        (transfer.__main__.main, ("cifar10_knn", "--ckpt", "{}/ckpt")),
        (run_all.main, ("--ckpt", "{}/ckpt")),
    ],
)
def test_every_command_refuses_to_be_one_of_several_strangers(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    main: Callable[[list[str]], int],
    args: tuple[str, ...],
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt").touch()
    (tmp_path / "data").mkdir()
    assert main([arg.format(tmp_path) for arg in args] + ["--data", str(tmp_path / "data")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "python -m slurm" in line
    assert "torchrun" in line


def test_run_all_is_not_started_once_per_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    launched = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "ckpt").touch()
    assert run_all.main(["--ckpt", f"{tmp_path}/ckpt", "--data", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for fact in ("WORLD_SIZE is 2", "python -m slurm --processes 1", "--slurm"):
        assert fact in line
