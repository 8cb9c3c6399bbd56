"""The command line of the checks."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.checks.__main__ import main
from pretrain.checks.catalog import LEARNING, Check, all_checks, check
from pretrain.checks.place import Place
from pretrain.checks.report import Outcome, judged
from tests.tiny_methods import LEARNING as LEARNING_METHODS

ROOT = Path(__file__).parents[3]


def passing(place: Place) -> Outcome:
    return judged([], {"device": place.device.type})


def poisoning(place: Place) -> Outcome:
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


CHECKS = [
    check("first", "methods", 1, passing),
    check("second", "views", 1, poisoning),
    check("third", "views", 1, passing),
]


def run(*words: str, checks: list[Check] = CHECKS) -> tuple[int, list[dict[str, Any]]]:
    written: list[str] = []
    status = main(["--device", "cpu", *words], written.append, checks)
    return status, [json.loads(line) for line in written]


def test_the_list_has_a_line_for_each_check() -> None:
    status, lines = run("--list", checks=all_checks())
    assert status == 0
    assert len(lines) == len({line["check"] for line in lines}) == len(all_checks())
    assert all(line["seconds"] > 0 for line in lines)


def test_the_checks_take_five_minutes_on_a_gpu() -> None:
    assert sum(each.line.seconds for each in all_checks()) <= 300


def test_every_method_that_learns_is_checked() -> None:
    assert set(LEARNING) == set(LEARNING_METHODS)


def test_after_an_error_of_cuda_the_process_ends_and_goes_on_by_skip() -> None:
    status, lines = run()
    assert status == 3
    assert [line.get("check") for line in lines] == [None, "first", None, "second"]
    status, lines = run("--skip", "first", "second")
    assert status == 0
    assert [line.get("check") for line in lines] == [None, "third"]


def test_only_chosen_checks_run() -> None:
    _, lines = run("--only", "third")
    assert [line.get("check") for line in lines] == [None, "third"]
    assert lines[1]["facts"] == {"device": "cpu"}


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "fourth")[0] == 2
    assert "fourth" in capsys.readouterr().err


def test_stdout_has_nothing_but_lines() -> None:
    program = """
import os, sys
from pretrain.checks.__main__ import lines_on_stdout
with lines_on_stdout() as write:
    print("noise")
    os.system("echo noise of a process")
    write("a line")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "a line\n"
    assert done.stderr.count("noise") == 2
