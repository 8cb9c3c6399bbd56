"""One cell of a larger run in a process of its own, or several that read the same pass over images.

    python -m benchmarks.execution.one_cell TASK --ckpt FILE [--then TASK --ckpt FILE ...]

The arguments are those of python -m transfer. There are two differences: a failure leaves its
reason for the tables, and a cell that another process works on is waited for. --prepare TASK,TASK
in front only fills the cache that these tasks share on the backbones of the cells, so that data
sets such as ImageNet-C are decoded once for all.
Exit status: 0 all records are there, 1 a cell failed, 2 the request is wrong, 75 stopped and can go
on or could not read its disk, 128 plus the number of the signal that killed one of its processes.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby

from benchmarks.execution.jobs import PREPARE, THEN
from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from pretrain.running.command_line import one_line_errors, parse, run_command
from pretrain.running.lock import BusyError
from pretrain.running.reading import may_pass
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.command import Evaluate, summary
from transfer.cells.execution import prepare
from transfer.cells.many_gpus import KilledError, evaluate_on_gpus
from transfer.datasets.expected import DataError
from transfer.encoders.encoder import BackboneError

RETRY_INTERVAL_S = 10.0


def cell_from_arguments(words: Sequence[str]) -> Cell:
    """Return the cell that the arguments describe."""
    prog = "python -m benchmarks.execution.one_cell"
    return parse(Evaluate, list(words), prog=prog, description=__doc__).cell()


def run(cell: Cell) -> int:
    """Run the cell; return the exit status once it has a record or has failed."""
    announced = False
    while True:
        stop.exit_if_requested()
        try:
            print(summary(cell, evaluate_on_gpus(cell)), flush=True)
        except BusyError:
            if not announced:
                announced = True
                print(f"{cell.key}  waits for another process", file=sys.stderr, flush=True)
            time.sleep(RETRY_INTERVAL_S)
        except KilledError as error:  # not the cell's fault: no failure file, it can go on
            print(f"{cell.key}  {error}", file=sys.stderr, flush=True)
            with suppress(WriteError):  # the first process may have called it a failure
                state.write(cell, "stopped", str(error))
            return 128 - error.status
        except Exception as error:  # the tables must show any reason
            state.fail(cell, error)
            print(f"{cell.key}  failed: {error}", file=sys.stderr, flush=True)
            return stop.EXIT_RESUMABLE if may_pass(error) else 1
        else:
            return 0


@one_line_errors(BackboneError, DataError, ValueError, FileNotFoundError)
def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    stop.listen()
    keys, words = (words[1], words[2:]) if words[:1] == [PREPARE] else ("", words)
    parts = [list(part) for is_then, part in groupby(words, THEN.__eq__) if not is_then]
    cells = [cell_from_arguments(part) for part in parts]
    if keys:
        for key in keys.split(","):
            prepare([cell.asking(task=key) for cell in cells])
            stop.exit_if_requested()
        return 0
    failed = 0
    for cell in cells:
        status = run(cell)
        if status > 128:  # a process was killed: the cells after it can go on later
            return status
        failed |= status
    return failed


if __name__ == "__main__":
    run_command(main)
