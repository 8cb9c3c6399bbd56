import time

import pytest

from pretrain.running.progress import LOG_INTERVAL_S, Progress


def progress_started(seconds_ago: float) -> Progress:
    """A run of 100 steps of 32 images, resumed after step 10."""
    now = time.monotonic()
    return Progress("jcl/smoke", 100, 20, 32, 10, waited_s=2.0, started_s=now - seconds_ago)


def test_the_line_names_what_is_done_the_rate_and_the_time_left() -> None:
    line = progress_started(10.0).line(20, loss=1.5)
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


def test_without_a_terminal_a_line_comes_every_half_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = progress_started(10.0)
    progress.show(20, 1.0)
    assert capsys.readouterr().err == ""
    progress.printed_s -= LOG_INTERVAL_S
    progress.show(21, 1.0)
    progress.show(22, 1.0)
    assert capsys.readouterr().err.count("\n") == 1
