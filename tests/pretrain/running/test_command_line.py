"""A wrong argument on a command line is reported in one sentence."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from benchmarks.planning.cells import task_keys
from pretrain.__main__ import main
from pretrain.running.command_line import nearest, parse, with_home
from transfer.datasets.catalog import dataset_info
from transfer.datasets.expected import DataError


@dataclass(frozen=True)
class Request:
    batch_size: int
    out: str = ""


@pytest.mark.parametrize("args", [["--bach-size", "3"], ["--batch-size", "3", "--bach_size=4"]])
def test_an_unknown_option_is_refused(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(Request, args)
    assert "Unrecognized options" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["--out=~/run"], ["--out", "~/run"]])
def test_home_is_expanded_where_no_shell_does(
    args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse(Request, [*args, "--batch-size", "2"]).out == "/home/me/run"
    assert with_home("--out=~") == "--out=/home/me"
    assert with_home("--data=a,~/b") == "--data=a,~/b"
    assert with_home("run~") == "run~"


@pytest.mark.parametrize(
    "arguments",
    [
        "pretrain --list",
        "benchmarks.figures --list",
        "benchmarks.run_all --help",
        "transfer check-data",
        "transfer get-data cifar10 --plan",
    ],
)
def test_a_reader_that_ends_ends_the_command_in_silence(arguments: str) -> None:
    command = f"{sys.executable} -m {arguments} | true"
    completed = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert completed.stderr == ""


@pytest.mark.parametrize(
    ("name", "first"),
    [("voc7_svm", "voc07_svm"), ("VOC07", "voc07_svm"), ("cifr10_knn", "cifar10_knn")],
)
def test_what_resembles_most_comes_first(name: str, first: str) -> None:
    expected = ("cifar100_knn", "coco_det", "voc07_svm", "cifar10_knn", "in1k_linear")
    assert nearest(name, expected).startswith(f"{first}, ")
    assert (nearest(name, ()), nearest(name, ("b",))) == ("", "b")


def test_commands_propose_the_name_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"unknown task 'coco_dett'. Did you mean coco_det, "):
        task_keys("coco_dett", "")
    with pytest.raises(ValueError, match=r"unknown suite 'lorc'. Did you mean lorac, "):
        task_keys("", "lorc")
    with pytest.raises(DataError, match=r"Did you mean flowers, "):
        dataset_info("flower")
    assert main(["jcl/in1kr50"]) == 2
    assert "did you mean jcl/in1k-r50, " in capsys.readouterr().err
