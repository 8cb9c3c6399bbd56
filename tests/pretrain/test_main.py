"""The command line: output, refused options, and recovery after signals and kills."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
import torch

import pretrain.data.listing
from pretrain.__main__ import COMPILED_GRAPHS, main
from pretrain.recipes import RECIPES
from tests.tiny_methods import losses

ROOT = Path(__file__).parents[2]
QUICK = ["--read-every-steps", "1", "--batch-size", "4", "--bn-splits", "2", "--epochs", "4"]


def test_a_signal_while_images_are_listed_is_an_interruption(
    image_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(files: list[str]) -> NoReturn:
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("the signal has had no effect")

    monkeypatch.setattr(pretrain.data.listing, "image_sizes", interrupt)
    args = ["--data", str(image_folder), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(["moco/smoke", *args]) == 75
    assert "stopped by SIGTERM. Run the same command to resume" in capsys.readouterr().err


def test_the_list_shows_every_recipe_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(RECIPES)
    paper = next(line for line in lines if line.startswith("jcl/in1k-r50 "))
    for text in ("ImageNet-1k train", " 200 ", " 512 ", " 0.06 ", "2009.14776", "jcl/table1"):
        assert text in paper


def test_a_dry_run_says_what_would_be_done_and_trains_nothing(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["jcl/smoke", "--data", str(image_folder), "--out", str(out), "--dry-run"]) == 0
    output = capsys.readouterr().err
    assert "views 3 x 32 px, 20 images in memory, batch 16, 2 steps" in output
    assert [file.name for file in out.iterdir()] == ["lock"]


@pytest.mark.parametrize("graphs_folder", ["", "/graphs"])
def test_compiled_graphs_are_kept_in_the_run_unless_the_user_names_a_folder(
    graphs_folder: str, image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMPILED_GRAPHS, graphs_folder)
    if not graphs_folder:
        monkeypatch.delenv(COMPILED_GRAPHS)
    monkeypatch.setattr("pretrain.start.start", lambda *_: 0)
    out = tmp_path / "run"
    assert main([*arguments(image_folder, out), "--compile"]) == 0
    assert os.environ[COMPILED_GRAPHS] == (graphs_folder or str(out / "compiled"))


def arguments(images: Path, out: Path) -> list[str]:
    return ["jcl/smoke", "--data", str(images), "--out", str(out), *QUICK]


def start(images: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pretrain", *arguments(images, out), *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(run: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit status and stdout."""
    output, _ = run.communicate(timeout=300)
    return run.returncode, output


def wait_for_step(out: Path, step: int) -> None:
    deadline_s = time.monotonic() + 200
    while time.monotonic() < deadline_s:
        if (out / "metrics.jsonl").exists():
            lines = (out / "metrics.jsonl").read_text().split("\n")[:-1]
            if lines and json.loads(lines[-1])["step"] >= step:
                return
        time.sleep(0.02)
    raise TimeoutError(f"{out} did not reach step {step}")


def same_weights(first: Path, second: Path) -> bool:
    a, b = (torch.load(out / "backbone.pt")["state_dict"] for out in (first, second))
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
def test_stopped_and_killed_runs_end_as_one_that_never_stopped(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped, killed = tmp_path / "whole", tmp_path / "stopped", tmp_path / "killed"
    assert main(arguments(image_folder, whole)) == 0
    output = capsys.readouterr().out
    assert output.startswith("jcl/smoke  4 epochs")
    assert output.endswith(f"->  {whole / 'backbone.pt'}\n")

    run = start(image_folder, stopped)
    wait_for_step(stopped, 2)
    run.send_signal(signal.SIGTERM)
    status, output = finish(run)
    assert status == 75
    assert "stopped by SIGTERM" in output
    assert main(arguments(image_folder, stopped)) == 0

    run = start(image_folder, killed)
    wait_for_step(killed, 7)  # the epoch has five steps, and ends with a checkpoint
    run.kill()
    assert finish(run)[0] == -signal.SIGKILL
    assert main(arguments(image_folder, killed)) == 0

    for second in (stopped, killed):
        assert same_weights(whole, second)
        assert losses(second) == losses(whole)


@pytest.mark.slow
def test_changed_settings_are_refused_on_resume(
    image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(image_folder, tmp_path / "run", "--epochs", "400")
    wait_for_step(tmp_path / "run", 1)
    assert main(arguments(image_folder, tmp_path / "run")) == 2
    assert "another process works here" in capsys.readouterr().err
    first.send_signal(signal.SIGUSR1)
    assert finish(first)[0] == 75
    assert main(arguments(image_folder, tmp_path / "run")) == 2
    assert "made by another run: --epochs 400.0 -> 4.0" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_make_one_run_and_one_of_them_speaks(
    image_folder: Path, tmp_path: Path
) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    args = ["--nproc-per-node", "2", "-m", "pretrain", *arguments(image_folder, tmp_path / "run")]
    completed = subprocess.run(
        [*launcher, *args, "--device", "cpu", "--bn-splits", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert completed.stdout.count("jcl/smoke  4 epochs") == 1
    assert [step for step, _ in losses(tmp_path / "run")] == list(range(1, 21))
    assert (tmp_path / "run" / "backbone.pt").exists()


@pytest.mark.slow
def test_the_exported_file_tells_how_it_was_made(image_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--data", str(image_folder), "--out", str(out), "--steps", "1", "--num-keys", "1"]
    assert main(["jcl/smoke", *options]) == 0
    made_by = torch.load(out / "backbone.pt", weights_only=True)["made_by"]
    assert made_by["method"] == "jcl"
    assert made_by["recipe"] == "jcl/smoke"
    assert made_by["changed"] == {"config.num_keys": 1}
    assert made_by["settings"]["batch_size"] == 16
    assert made_by["epochs"] == 1.0  # 20 images fill one batch of 16
    assert made_by["data"].startswith("images (20 images, fingerprint ")
    assert made_by["seed"] == 0
    assert {"commit", "versions"} <= made_by.keys()
    assert made_by["last_epoch"]["loss"] > 0
    assert list((out / "tensorboard").iterdir())
