"""Log lines and progress."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain.running import console
from pretrain.running.console import live_bars, progress, progress_file

SHOW = """
import time
from pretrain.running import console
console.BAR_INTERVAL_S = 0.0
with console.live_bars(), console.progress("features", "cifar10 [test]", 40) as counter:
    counter.add(10)
    console.print_line("data", "a line meanwhile")
    counter.add(30)
"""


def in_terminal(program: str, **environment: str) -> str:
    """Return what a program writes to a terminal."""
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=theirs, stderr=theirs, env=surroundings
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()


def test_a_terminal_shows_a_bar_below_the_lines(capfd: pytest.CaptureFixture[str]) -> None:
    text = in_terminal(SHOW)
    assert "cifar10 [test]" in text
    assert "━" in text
    assert "10/40 images" in text
    assert text.index("10/40") < text.index("a line meanwhile") < text.rindex("40/40 images")


def test_a_dumb_terminal_gets_plain_lines_and_quiet_none() -> None:
    text = in_terminal(SHOW, TERM="dumb")
    assert "━" not in text
    assert "40/40 images" in text
    assert in_terminal(SHOW, **{console.QUIET: "1"}) == ""


def test_a_notebook_with_widgets_has_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", console)
    for module in (None, "ipywidgets"):
        monkeypatch.setattr(console, "find_spec", lambda _, module=module: module)
        with live_bars() as bars:
            assert (bars is None) == (module is None)


def test_progress_is_told_in_a_file_that_goes_with_the_work_and_may_fail_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "FILE_INTERVAL_S", 0.0)
    path = tmp_path / "work" / "progress.json"
    with progress_file(path), progress("train", "7 rates", 8, "steps", done=2) as counter:
        counter.add(2)
        told = json.loads(path.read_text())
        assert (told["step"], told["subject"]) == ("train", "7 rates")
        assert told["state"].startswith("4/8 steps")
    assert not path.exists()
    (tmp_path / "file").touch()
    with progress_file(tmp_path / "file" / "below"), progress("train", "rates", 2) as counter:
        counter.add(2)
    assert counter.done == 2


def test_without_a_terminal_a_line_comes_after_10_s_and_then_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    printed = 0
    with progress("train", "jcl/smoke", 3200, done=320) as counter:
        for clock[0], lines in ((5.0, 0), (11.0, 1), (12.0, 1), (40.0, 1), (42.0, 2)):
            counter.add(32)
            printed += capsys.readouterr().err.count("\n")
            assert printed == lines
        assert counter.rate == pytest.approx(160 / 42)
    assert capsys.readouterr().err[8:].startswith("  train       jcl/smoke  480/3200 images")
