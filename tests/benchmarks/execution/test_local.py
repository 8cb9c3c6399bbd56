"""Jobs on one machine, several at a time."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

import benchmarks.execution.local
from benchmarks.execution.graph import job_graph
from benchmarks.execution.local import run_jobs
from benchmarks.planning.plan import PlannedCell
from pretrain.running import stop
from pretrain.running.host_memory import SHARERS
from pretrain.running.processes import assume_gpus
from tests.benchmarks.conftest import Rows
from tests.slurm.conftest import wait_until
from transfer.cells import state
from transfer.record import state_path


def instead(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Let a job be this line of bash.

    $1 is the task of its first cell.
    """

    def command(file: Path) -> tuple[str, ...]:
        return ("bash", "-c", line, "job", json.loads(file.read_text())["cells"][0]["task"])

    monkeypatch.setattr(benchmarks.execution.local, "command", command)


def run(rows: list[PlannedCell], workers: int) -> list[str]:
    """Run the rows; return the tasks that have failed."""
    run_jobs(job_graph(rows), workers, rows[0].cell.settings)
    return [row.cell.key for row in rows if state.failure(row.cell)]


def test_each_cell_has_its_own_gpu(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = rows("cifar10_knn", "in100_knn", "voc07_svm", "cifar100_knn", hours=0.0)
    monkeypatch.setattr(benchmarks.execution.local, "visible_gpus", lambda: ["3", "5"])
    log = tmp_path / "log"
    share = f"echo ${SHARERS} >> {tmp_path}/shares"
    begin, end = (f'echo "{sign}$CUDA_VISIBLE_DEVICES" >> {log}' for sign in "+-")
    instead(monkeypatch, f"{share}; {begin}; sleep 0.3; {end}; [ $1 != in100_knn ]")
    monkeypatch.setattr(
        benchmarks.execution.local, "record_of", lambda cell: cell.key[:2] != "in" or None
    )
    assert run(four, 9) == ["in100_knn"]  # which leaves the others
    assert (tmp_path / "shares").read_text().split() == ["2"] * 4
    used: set[str] = set()
    for arg in log.read_text().split():
        assert arg[1:] in ("3", "5")
        assert (arg[1:] in used) == (arg[0] == "-")
        used ^= {arg[1:]}


def test_what_uses_a_classifier_starts_once_that_is_trained_or_has_failed(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("imagenet_c100_eval", "objectnet13_eval", "in100_linear@looc", "cifar10_knn")
    log = tmp_path / "log"
    # nobody ends before both that need no classifier have started, however busy the machine is
    wait = f"while ! grep -q +cifar10_knn {log} || ! grep -q +in100 {log}; do sleep 0.01; done"
    instead(monkeypatch, f"echo +$1 >> {log}; {wait}; echo -$1 >> {log}")
    run(rows(*keys), 4)
    output = log.read_text().split()
    assert set(output[:2]) == {"+in100_linear@looc", "+cifar10_knn"}
    trained = output.index("-in100_linear@looc")
    assert trained < min(output.index(f"+{key}") for key in keys[:2])


def test_fine_tuning_gets_all_gpus(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.execution.local, "visible_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(benchmarks.execution.local, "record_of", lambda _: "a record")
    instead(monkeypatch, f'echo "$1 $CUDA_VISIBLE_DEVICES ${SHARERS}" >> {tmp_path}/log')
    with assume_gpus(2):
        assert run(rows("coco_det", "cifar10_knn"), 2) == []
    lines = (tmp_path / "log").read_text().splitlines()
    assert re.fullmatch("cifar10_knn [01] 2", lines[0])
    assert re.fullmatch("coco_det (0,1|1,0) 1", lines[1])


def test_long_jobs_start_first(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks.execution.local, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(benchmarks.execution.local, "record_of", lambda _: "a record")
    instead(monkeypatch, f"echo $1 >> {tmp_path}/log")
    run([*rows("cifar10_knn"), *rows("voc07_svm", hours=2.0)], 2)
    assert (tmp_path / "log").read_text().split() == ["voc07_svm", "cifar10_knn"]


def test_runs_with_equal_process_ids_have_different_job_files(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.execution.local, "record_of", lambda _: "a record")
    files = []

    def command(file: Path) -> tuple[str, ...]:
        files.append(file)
        return ("true",)

    monkeypatch.setattr(benchmarks.execution.local, "command", command)
    for _ in range(2):
        run(rows("cifar10_knn"), 2)
    assert len({*files}) == 2


PASS = ("in100_linear@jcl", "in100_linear@looc", "in100_linear@lorac")


def test_of_a_pass_those_fail_that_have_left_no_record(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = rows(*PASS)
    first, second, third = (row.cell for row in planned)
    ours = state_path(second.path)
    ours.parent.mkdir(parents=True)
    completed = {first.path: "a record"}
    monkeypatch.setattr(
        benchmarks.execution.local, "record_of", lambda cell: completed.get(cell.path)
    )
    killed, stopped = (
        "killed by SIGKILL",
        "stopped by another process. Run the same command to resume",
    )
    lines = {"exit 1": "exit status 1", "kill -9 $$": killed, "exit 137": killed}
    lines["exit 75"] = stopped
    for line, reason in lines.items():
        state.write(third, "queued")
        failed = '{"state": "failed", "reason": "own"}'
        instead(monkeypatch, f"echo '{failed}' > '{ours}'; {line}")
        assert run(planned, 2) == [second.key, third.key]
        assert state.failure(second) == "own"
        assert reason in state.failure(third)
    assert not list((first.settings.runs / "jobs").iterdir())


def test_second_ctrl_c_ends_a_stopped_cell_at_once(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = rows("cifar10_knn")
    previous = signal.signal(
        signal.SIGTERM, lambda *_: stop._received_signals.append(signal.SIGTERM)
    )
    try:
        for number in ("TERM", "USR2"):
            instead(monkeypatch, f"kill -TERM $PPID; kill -{number} $$")
            monkeypatch.setattr(stop, "_received_signals", [])
            with pytest.raises(stop.Stopped):
                run(planned, 2)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert not state.failure(planned[0].cell)
    monkeypatch.setattr(stop, "_received_signals", [])
    instead(monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 600")

    def interrupted(seconds: float) -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("benchmarks.execution.local.time.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(planned, 2)
    assert not (Path("/proc") / (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_states_of_a_stopped_run_say_so(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    planned = rows("cifar10_knn", "in100_knn", "voc07_svm", "cifar100_knn")
    extracting, _, elsewhere, waits_elsewhere = (row.cell for row in planned)
    for row in planned:
        state.write(row.cell, "queued")

    def stopped(*_: object, **options: object) -> int:
        state.write(extracting, "running", "features  10 %")
        state.write(elsewhere, "running", host="another machine")
        state.write(waits_elsewhere, "queued", host="another machine")
        os.utime(state_path(waits_elsewhere.path), (1e9, 1e9))
        raise stop.Stopped(75)

    monkeypatch.setattr(benchmarks.execution.local, "run", stopped)
    monkeypatch.setattr("benchmarks.execution.local.subprocess.Popen", stopped)
    with pytest.raises(stop.Stopped):
        run(planned, workers)
    states = state.read_states(extracting.settings.results)
    stored = {item.key: item.content["state"] for item in states}
    assert stored == {
        "cifar10_knn": "stopped",
        "in100_knn": "stopped",
        "voc07_svm": "running",
        "cifar100_knn": "queued",
    }
    page = (extracting.settings.runs / "status.html").read_text()
    assert page.count('<tr class="stopped">') == 2


def test_waiting_cells_stay_alive_for_other_machines(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = rows("cifar10_knn", "in100_knn", "voc07_svm")
    results = planned[0].cell.settings.results
    for row in planned:
        state.write(row.cell, "queued", host="other")
        os.utime(state_path(row.cell.path), (1e9, 1e9))
    assert {item.name for item in state.read_states(results)} == {"stopped"}
    instead(monkeypatch, "true")
    run(planned, 2)
    assert {item.name for item in state.read_states(results)} == {"queued"}


def test_cells_end_with_the_process_that_runs_them(
    rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"trap 'touch {tmp_path}/asked; exit' TERM; touch {tmp_path}/on; "
    instead(monkeypatch, line + "for i in {1..300}; do sleep 0.1; done")
    planned = rows("cifar10_knn")
    parent = os.fork()
    if not parent:
        try:
            run(planned, 2)
        finally:
            os._exit(0)
    wait_until((tmp_path / "on").exists)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_until((tmp_path / "asked").exists)
