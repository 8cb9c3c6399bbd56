import time

import pytest

from pretrain.running.progress import FIRST_LINE_S, LOG_INTERVAL_S, Progress


def progress_started(seconds_ago: float) -> Progress:
    """A run of 100 steps of 32 images, resumed after step 10."""
    now = time.monotonic()
    return Progress("jcl/smoke", 100, 20, 32, 10, waited_s=2.0, started_s=now - seconds_ago)


def test_the_line_names_what_is_done_the_rate_and_the_time_left() -> None:
    progress = progress_started(10.0)
    progress.loss = 1.5
    line = progress.line(20)
    for part in (
        "jcl/smoke",
        "epoch 1.00/5",
        "640/3200 images",
        "32 images/s",
        "20 % waiting for data",
        "loss 1.5000",
        "1 min 20 s left",
    ):
        assert part in line


def test_without_a_terminal_a_line_comes_after_10_s_and_then_every_half_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = progress_started(10.0)
    progress.show(20)
    assert capsys.readouterr().err == ""
    progress.printed_s -= FIRST_LINE_S
    progress.show(20)
    assert capsys.readouterr().err.count("\n") == 1
    progress.printed_s -= LOG_INTERVAL_S
    progress.show(21)
    progress.show(22)
    assert capsys.readouterr().err.count("\n") == 1
