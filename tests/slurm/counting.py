"""A command that can stop and resume: python counting.py FILE STEPS [GATE].

It adds 1 to the number in a file every tenth of a second. On a signal it finishes its step and
exits with 75. Each start adds a line to FILE.starts. It waits at half of the steps until the file
GATE exists.
"""

import signal
import sys
import time
from pathlib import Path

signals: list[int] = []
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, lambda number, _: signals.append(number))
file, steps = Path(sys.argv[1]), int(sys.argv[2])
gate = Path(sys.argv[3]) if len(sys.argv) > 3 else file.parent
count = int(file.read_text()) if file.exists() else 0
with file.with_suffix(".starts").open("a") as starts:
    starts.write(f"{count}\n")
while count < steps:
    time.sleep(0.1)
    if count != steps // 2 or gate.exists():
        count += 1
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(str(count))
    unfinished.replace(file)
    if signals and count < steps:
        sys.exit(75)
