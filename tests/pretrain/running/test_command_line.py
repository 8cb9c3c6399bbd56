"""A wrong word on a command line is told in one sentence."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from pretrain.running.command_line import parse


@dataclass(frozen=True)
class Request:
    batch_size: int
    out: str = ""


@pytest.mark.parametrize("words", [["--bach-size", "3"], ["--batch-size", "3", "--bach_size=4"]])
def test_an_unknown_option_is_named_with_the_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(Request, words)
    assert capsys.readouterr().err == (
        "error: no option --bach-size; did you mean --batch-size? --help shows all\n"
    )


def test_a_wrong_value_is_told_as_tyro_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(Request, ["--batch-size", "three"])
    assert "--batch-size" in capsys.readouterr().err


def test_a_reader_that_ends_ends_the_command_in_silence() -> None:
    command = f"{sys.executable} -m pretrain --list | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("recipe")
    assert done.stderr == ""
