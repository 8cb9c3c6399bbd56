"""The last line of a stopped run, printed after torchrun's own report.

torchrun reports every stop as an error when its processes have ended. So another process waits for
torchrun to end and then prints the line: python last_line.py PROCESS TEXT.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
"""Seconds to wait for the end of torchrun, which kills its processes after 30 s."""
PAUSE_S = 0.05


def print_last_line(text: str) -> None:
    """Write a line to stderr at once, or under torchrun when that has ended."""
    line = f"{time.strftime('%H:%M:%S')}  {text}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        print(line, file=sys.stderr, flush=True)
        return
    subprocess.Popen(
        [sys.executable, "-I", __file__, str(os.getppid()), line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # signals to the process group must not end it
    )


def wait_for_end(process: int) -> None:
    """Wait until a process has ended, a minute at most."""
    late_s = time.monotonic() + PATIENCE_S
    while is_running(process) and time.monotonic() < late_s:
        time.sleep(PAUSE_S)


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended; always False outside Linux."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


if __name__ == "__main__":
    wait_for_end(int(sys.argv[1]))
    print(sys.argv[2], file=sys.stderr)
