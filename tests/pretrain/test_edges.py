"""A run without its terminal saves; with closed output it trains."""

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pretrain.test_main import wait_for_step
from tests.tiny_methods import losses

ROOT = Path(__file__).parents[2]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
pytestmark = pytest.mark.slow


def arguments(images: Path, out: Path, *options: str) -> list[str]:
    args = ["-m", "pretrain", "moco/smoke", "--data", str(images), "--out", str(out)]
    args += ["--read-every-steps", "1", "--batch-size", "4", "--size-px", "16", "--bn-splits", "1"]
    return [*args, "--device", "cpu", *options]


def test_a_lost_connection_saves_and_exits_with_75(image_folder: Path, tmp_path: Path) -> None:
    args = arguments(image_folder, tmp_path / "run", "--epochs", "4000")
    process, terminal = pty.fork()
    if not process:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, *args])
    wait_for_step(tmp_path / "run", 1)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["one", "two"])
def test_a_hangup_is_ignored_under_nohup_unless_torchrun_passes_it_on(
    image_folder: Path, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    args = arguments(image_folder, tmp_path / "run", "--epochs", "4" if not launcher else "4000")
    run = subprocess.Popen(
        ["nohup", sys.executable, *launcher, *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_step(tmp_path / "run", 1)
    run.send_signal(signal.SIGHUP)
    output, _ = run.communicate(timeout=200)
    assert run.returncode == (1 if launcher else 0)  # torchrun has no other status
    assert ("stopped by SIGHUP. Run the same command to resume" in output) == bool(launcher)
    assert (tmp_path / "run" / "checkpoint.pt").exists()


def test_a_run_trains_on_after_its_reader_has_ended(image_folder: Path, tmp_path: Path) -> None:
    args = shlex.join([sys.executable, *arguments(image_folder, tmp_path / "run")])
    piped = f"({args}; echo $? > {tmp_path}/status) 2>&1 | head -1"
    subprocess.run(piped, shell=True, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "status").read_text() == "0\n"
    assert [step for step, _ in losses(tmp_path / "run")] == list(range(1, 11))


def test_ctrl_c_that_reaches_the_reader_too_is_a_stop(image_folder: Path, tmp_path: Path) -> None:
    args = shlex.join(
        [sys.executable, *arguments(image_folder, tmp_path / "run", "--epochs", "4000")]
    )
    # a shell in between starts both ends in one process group, as a terminal does
    piped = (
        f"trap '' INT; (trap - INT; {args}; echo $? > {tmp_path}/status) 2>&1 | (trap - INT; cat)"
    )
    run = subprocess.Popen(
        ["bash", "-c", piped], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )
    wait_for_step(tmp_path / "run", 1)
    os.killpg(run.pid, signal.SIGINT)
    run.wait(timeout=200)
    assert (tmp_path / "status").read_text() == "75\n"
