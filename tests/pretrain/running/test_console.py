"""Log lines and progress."""

import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pretrain.running import console
from pretrain.running.console import live_bars, progress, progress_callback

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
    """Return a program's output to a terminal."""
    ours, theirs = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=theirs, stderr=theirs, env=surroundings
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        written += chunk
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


def test_progress_is_told_to_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "CALLBACK_INTERVAL_S", 0.0)
    output: list[str] = []
    with (
        progress_callback(output.append),
        progress("train", "7 rates", 8, "steps", done=2) as counter,
    ):
        counter.add(2)
    assert output[0].startswith("train  7 rates  4/8 steps")


def test_progress_without_a_terminal_is_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    printed = 0
    with progress("train", "jcl/smoke", 3200, done=320) as counter:
        for clock[0], lines in ((5.0, 0), (11.0, 1), (12.0, 1), (40.0, 1), (42.0, 2)):
            counter.add(32)
            text = capsys.readouterr().err
            printed += text.count("\n")
            assert printed == lines
        assert counter.rate == pytest.approx(160 / 42)
    assert text[8:].startswith("  train       jcl/smoke  480/3200 images")


def test_last_line_is_not_printed_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "FIRST_LINE_S", 0.0)
    with progress("features", "dtd trainval", 160) as counter:
        counter.add(160)
    assert capsys.readouterr().err.count("160/160 images") == 1


def test_last_line_has_the_last_subject(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "FIRST_LINE_S", 0.0)
    with progress("train", "loss 3", 160) as counter:
        counter.add(160)
        counter.subject = "loss 2"
    assert "loss 2  160/160 images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("num_items", "unit", "text"),
    [
        (2, "steps", "2/4 steps   10.0 s/step"),
        (3, "images", "3/4 images   6.7 s/image"),
        (40, "steps", "40/4 steps   2 steps/s"),
        (0, "steps", "0/4 steps"),
    ],
)
def test_slow_progress_is_in_seconds_per_item(
    num_items: int, unit: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    with progress("train", "1 rate", 4, unit) as counter:
        clock[0] = 20.0
        counter.add(num_items)
        assert counter.state() == text


PRINT = """
import sys, time
from pathlib import Path
from pretrain.running.console import print_line, protect_output
protect_output()
for step in range(100):
    print("result", step, flush=True)
    print_line(f"step {{step}}")
{end}
Path(sys.argv[1]).write_text("all steps")
"""


@pytest.mark.parametrize(
    "reader",
    ["{} | head -1", "{} 2>&1 | true", "{} > /dev/full 2> /dev/full", "{} >&- 2>&-", "{} 2>&-"],
)
def test_work_continues_without_a_reader_of_its_output(tmp_path: Path, reader: str) -> None:
    args = shlex.join([sys.executable, "-c", PRINT.format(end="")])
    command = reader.format(f"({args} {tmp_path / 'file'}; echo $? > {tmp_path / 'status'})")
    completed = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (tmp_path / "status").read_text() == "0\n"
    assert (tmp_path / "file").read_text() == "all steps"
    assert "Error" not in completed.stderr


def test_work_continues_after_its_terminal_is_closed(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    end = "time.sleep(0.5); print('nobody reads it')"
    args = [sys.executable, "-c", PRINT.format(end=end), str(tmp_path / "file")]
    process = subprocess.Popen(args, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.read(ours, 1)
    os.close(ours)
    assert process.wait() == 0
    assert (tmp_path / "file").exists()


def test_characters_that_a_log_cannot_show_are_escaped() -> None:
    program = "from pretrain.running.console import protect_output; protect_output();"
    program += "print('läufe/\\udce4')"
    for encoding, output in (("ascii", rb"l\xe4ufe/\udce4"), ("utf-8", "läufe/".encode())):
        settings = os.environ | {"PYTHONIOENCODING": encoding}
        completed = subprocess.run(
            [sys.executable, "-c", program], env=settings, capture_output=True
        )
        assert (completed.returncode, completed.stderr) == (0, b"")
        assert completed.stdout.startswith(output)
