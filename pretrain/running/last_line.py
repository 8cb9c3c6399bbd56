"""The last line of a run that was stopped, also where torchrun has its say at the end.

torchrun reports every stop as an error, once its processes have ended. So the line comes from a
process that waits for torchrun to end: python last_line.py PROCESS TEXT.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60.0
"""How long the end of torchrun is waited for; it kills its processes after half of that."""
PAUSE_S = 0.05


def say_last(text: str) -> None:
    """Write a line to stderr: now, or under torchrun when that has ended."""
    line = f"{time.strftime('%H:%M:%S')}  {text}"
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        print(line, file=sys.stderr, flush=True)
        return
    subprocess.Popen(
        [sys.executable, "-I", __file__, str(os.getppid()), line],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # signals to the group are not for it
    )


def wait_for_end(process: int) -> None:
    """Return when a process has ended, or after a minute."""
    late_s = time.monotonic() + PATIENCE_S
    while is_running(process) and time.monotonic() < late_s:
        time.sleep(PAUSE_S)


def is_running(process: int) -> bool:
    """Return whether there is such a process and it has not ended; Linux alone can tell."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


if __name__ == "__main__":
    wait_for_end(int(sys.argv[1]))
    print(sys.argv[2], file=sys.stderr)
