"""Console scripts run the same modules as `python -m`."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import scripts
from benchmarks.scripts import SUBCOMMANDS
from pretrain.__main__ import main as pretrain

RUN_ALL = str(Path(__file__).parents[2] / "benchmarks" / "run_all.py")


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["--ckpt", "a.pth"], "benchmarks.run_all"),
        ([], "benchmarks.run_all"),
        *(([name, "--help"], module) for name, module in SUBCOMMANDS.items()),
    ],
)
def test_the_first_word_chooses_the_command(
    words: list[str], module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(sys, "argv", ["ssl-benchmark", *words])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: runs.append((name, sys.argv[1:])))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    scripts.benchmark()
    assert runs == [(module, [arg for arg in words if arg not in SUBCOMMANDS])]
    assert os.environ["PYTHONSAFEPATH"] == "1"  # for the processes that it starts


def test_pretraining_without_opencv_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pretrain.__main__.find_spec", lambda name: None)
    assert pretrain(["moco/smoke", "--data", "any", "--out", "run"]) == 2
    assert "pip install opencv-python-headless" in capsys.readouterr().err


def test_run_all_uses_the_packages_of_its_own_checkout(tmp_path: Path) -> None:
    second = tmp_path / "installed"
    for package in ("benchmarks", "pretrain", "slurm", "transfer"):
        (second / package).mkdir(parents=True)
        (second / package / "__init__.py").write_text("raise SystemExit('of another checkout')\n")
    program = (
        "import runpy, subprocess, sys\n"
        f"try: runpy.run_path({RUN_ALL!r}, run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "child = [sys.executable, '-m', 'transfer', '--list']\n"
        "subprocess.run(child, check=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(second)}
    command = [sys.executable, "-c", program, "--help"]
    subprocess.run(command, check=True, cwd=second, env=environment, stdout=subprocess.DEVNULL)
