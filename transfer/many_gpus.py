"""A cell in several processes, one per GPU: python -m transfer.many_gpus FILE under torchrun.

The file is the cell itself, written a moment before by the process that starts the others.
"""

import pickle
import subprocess
import sys
from pathlib import Path

from transfer import stop
from transfer.cell import Cell, evaluate, finished
from transfer.processes import joined, this_process, wanted_processes
from transfer.record import Record
from transfer.tasks import FineTuned


def evaluate_where_asked(cell: Cell) -> Record:
    """The cell's record: from a process per GPU where the whole network is trained, else this one.

    RuntimeError if the processes ended without a record.
    """
    num_processes = wanted_processes(cell.place.training.gpus)
    alone = num_processes == this_process().num_processes or not isinstance(cell.task, FineTuned)
    if alone or finished(cell) is not None:
        return evaluate(cell)
    file = cell.folders.work / "cell.pickle"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(cell))
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words += [f"--nproc-per-node={num_processes}", "-m", "transfer.many_gpus", str(file)]
    status = subprocess.run(words, check=False).returncode
    stop.leave_if_asked()
    record = finished(cell)
    if status or record is None:
        raise RuntimeError(
            f"{num_processes} processes ended with status {status} and without a record; their "
            f"messages stand above. The same command goes on from the last checkpoint"
        )
    return record


def main(file: Path) -> None:
    """What each of the processes does."""
    cell: Cell = pickle.loads(file.read_bytes())
    stop.listen()
    with joined():
        evaluate(cell)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
