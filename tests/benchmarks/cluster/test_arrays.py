"""A plan is split into job arrays, and their states are read later."""

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import benchmarks.execution.states
from benchmarks.cluster.arrays import (
    MARGIN,
    _write_submitted,
    cancel_all,
    collect,
    gpus_at_a_time,
    plan_arrays,
    replace_gpus,
    retry_failed,
    submit_cells,
)
from benchmarks.execution.ending import write_requested
from benchmarks.execution.graph import job_graph
from benchmarks.execution.states import all_states, write_status_page
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from benchmarks.run_all import main
from pretrain.running.processes import assume_gpus
from slurm.cluster import Cluster, ClusterError
from slurm.resources import Queue
from slurm.submit import Array
from tests.benchmarks.conftest import Rows
from tests.slurm.fake_programs import fake_programs
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate
from transfer.cells.job import read_job
from transfer.cells.request import Request, Settings
from transfer.cells.state import State, StateName, read_states
from transfer.encoders.options import Checkpoint
from transfer.record import state_path

OPTIONS = SlurmOptions(parallel=2)
PROGRAMS = {
    "srun": "",
    "sbatch": 'D=$(dirname "$0"); cp "$1" $D/job.$(ls $D | wc -l); '
    'echo "Submitted batch job $(ls $D/job.* | wc -l)"',
    "squeue": 'cat "$(dirname "$0")/queue" 2>/dev/null || true',
    "scontrol": "true",
    "scancel": 'echo "$@" >> "$(dirname "$0")/cancelled"',
    "sacct": "exit 1",
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's programs without a cluster behind them.

    What is in `queue` is what squeue says.
    """
    return fake_programs(tmp_path / "bin", monkeypatch, **PROGRAMS)


@pytest.fixture
def from_file(checkpoint: Path, settings: Settings) -> Callable[..., list[PlannedCell]]:
    """Cells to run of a checkpoint file, which a retry reads again."""

    def make(*keys: str, ckpt: Path = checkpoint) -> list[PlannedCell]:
        requested = Checkpoint(ckpt=ckpt)
        cells = (
            Cell.of(Request(task=key, checkpoint=requested, settings=settings)) for key in keys
        )
        return [PlannedCell(cell, "run", (), 1.0) for cell in cells]

    return make


@pytest.fixture
def submission(rows: Rows, settings: Settings, programs: Path) -> list[State]:
    """Two evaluations in one array (jobs 1_0, 1_1) and the tables' job 2."""
    return submit(rows("cifar10_knn", "in100_knn"), settings)


def states(settings: Settings) -> list[tuple[str, str]]:
    return [(item.name, item.detail) for item in all_states(settings.results)[0]]


def submit(rows: list[PlannedCell], settings: Settings) -> list[State]:
    assert submit_cells(rows, OPTIONS, Cluster({})) > 0
    return read_states(settings.results)


def jobs(settings: Settings) -> dict[str, str]:
    """The job of each submitted task."""
    return {item.key: item.content["job"] for item in read_states(settings.results)}


def arrays_of(rows: list[PlannedCell], most_minutes: float = math.inf) -> list[Array]:
    where = Cluster({}, {"": most_minutes})
    return [array for array, _ in plan_arrays(job_graph(rows), OPTIONS, Path("x"), where)]


def test_cells_of_one_size_are_one_array(rows: Rows) -> None:
    result = rows("cifar10_knn", "in100_knn", "voc07_svm", hours=0.1)
    cells, tables = arrays_of(result)
    assert (len(cells.commands), cells.dependencies) == (3, ())
    assert (cells.parallel, cells.resources.hours) == (2, 1)
    assert (len(tables.commands), tables.dependencies) == (1, (0,))
    result[0] = replace(result[0], gpu_hours=5.0)
    assert [array.resources.hours for array in arrays_of(result)] == [5 * MARGIN, 1, 1]
    assert [array.resources.hours for array in arrays_of(result, 30)] == [0.5, 0.5]


def test_all_jobs_of_a_split_array_are_printed(
    rows: Rows, settings: Settings, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Cluster({"MaxArraySize": "2"})  # arrays of one job
    assert submit_cells(rows("cifar10_knn", "in100_knn"), OPTIONS, small) == 2
    assert "jobs 1, 2, 3  ->" in capsys.readouterr().out


PASS = ("in100_linear@jcl", "in100_linear@looc")
FromFile = Callable[..., list[PlannedCell]]


def test_cells_of_one_pass_have_one_job_and_a_state_each(
    from_file: FromFile, settings: Settings, programs: Path
) -> None:
    result = from_file(*PASS)
    submit(result, settings)
    (job,) = {*jobs(settings).values()}
    (programs / "queue").write_text(f"{job}|RUNNING|None|n1\n")
    write_as_job(result[0].cell, "done")
    assert [name for name, _ in states(settings)] == ["done", "running"]
    (programs / "queue").write_text(f"{job}|TIMEOUT|None|n1\n")
    assert [name for name, _ in states(settings)] == ["done", "failed"]
    write_as_job(result[0].cell, "queued")
    assert retry_failed(settings.results, SlurmOptions()) == 2
    (again,) = {*jobs(settings).values()}
    assert again != job


def test_several_backbones_pass_the_images_whose_features_they_read_together(
    from_file: FromFile, other_checkpoint: Path, settings: Settings, programs: Path
) -> None:
    keys = ("imagenet_c100_eval", "in100_linear@looc", "voc07_svm", "voc07_svm@11point")
    mine = from_file(*keys)
    submit([*mine, *from_file(*keys, ckpt=other_checkpoint)], settings)
    folder = Path(read_states(settings.results)[0].content["log"]).parent
    cells = [
        [(request.checkpoint.ckpt.stem, request.task) for request in read_job(file)]
        for file in sorted(folder.glob("*.json"))
    ]
    looc, svms = keys[1], keys[2:]
    assert cells == [
        [("mine", looc), ("other", looc)],
        [(name, key) for name in ("mine", "other") for key in svms],
        [("mine", keys[0]), ("other", keys[0])],
    ]
    *_, users, tables = plan_arrays(job_graph(mine), OPTIONS, folder, Cluster({}))
    assert (users[0].dependencies, tables[0].dependencies) == ((0,), (0, 1, 2))


def test_what_cannot_be_written_down_is_taken_back(
    rows: Rows, settings: Settings, programs: Path, fill_disk: Callable[[str], None]
) -> None:
    fill_disk("state.json")
    with pytest.raises(
        ClusterError, match=r"No space left on device.*the submitted jobs were cancelled"
    ):
        submit(rows("cifar10_knn"), settings)
    assert (programs / "cancelled").read_text().split() == ["1", "2"]


def write_as_job(cell: Cell, name: StateName, reason: str = "") -> None:
    """Write a state as the evaluation's job does.

    The submission stays in it. Its process is on another machine.
    """
    stored = state.read_state(state_path(cell.path))
    assert stored is not None
    changes = {"state": name, "reason": reason, "host": "a node"}
    state.store(stored.path, stored.content | changes)


def test_cell_that_waits_on_the_cluster_stays_submitted_while_it_runs_here(
    submission: list[State],
    rows: Rows,
    settings: Settings,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|PENDING|Priority|\n")
    monkeypatch.setenv("SLURM_JOB_ID", "9")  # also in the shell of an interactive job
    (row,) = rows("cifar10_knn")
    write_requested([row], named=True, is_local=True)
    assert states(settings)[0] == ("queued", "Priority")
    with state.reporting(row.cell):
        assert states(settings)[0] == ("running", "starts")
    assert states(settings)[0] == ("done", "")
    assert cancel_all(settings.results) == 2


def test_cell_that_runs_here_after_its_job_has_ended_is_not_submitted(
    submission: list[State], rows: Rows, settings: Settings, programs: Path
) -> None:
    (row,) = rows("cifar10_knn")
    write_as_job(row.cell, "failed", "no data")
    with state.reporting(row.cell):
        assert states(settings)[0] == ("running", "starts")
    assert [item.is_submitted for item in read_states(settings.results)] == [False, True]


def test_waiting_jobs_are_not_submitted_again(
    submission: list[State], rows: Rows, settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    assert jobs(settings) == {"cifar10_knn": "1_0", "in100_knn": "1_1"}
    result = rows("cifar10_knn", "in100_knn")
    assert submit_cells(result, OPTIONS, Cluster({})) == 0
    result[1:] = rows("voc07_svm")
    assert submit_cells(result, OPTIONS, Cluster({})) == 1
    assert [*jobs(settings)] == ["cifar10_knn", "in100_knn", "voc07_svm"]
    (programs / "queue").write_text("1_0|COMPLETED|None|n1\n1_1|RUNNING|None|n1\n")
    assert cancel_all(settings.results) == 1
    assert (programs / "cancelled").read_text().split() == ["1_1"]


def test_each_state_is_told_from_what_there_is(
    submission: list[State],
    rows: Rows,
    settings: Settings,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (row.cell for row in rows("cifar10_knn", "in100_knn"))
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    log = Path(submission[1].content["log"])
    log.write_text("12:00:31  train  3/9 steps\n")
    assert states(settings) == [("queued", "Priority"), ("running", "12:00:31  train  3/9 steps")]
    write_as_job(second, "running", "train  4/9 steps")
    assert states(settings)[1] == ("running", "train  4/9 steps")
    write_as_job(first, "done")
    (programs / "queue").write_text("")
    log.write_text("error: no such file\n")
    text = "killed; the cluster reports no reason; last log line: error: no such file"
    assert states(settings) == [("done", ""), ("failed", text)]
    write_as_job(second, "failed", "DataError: no folder cifar10")
    args = ["--results", str(settings.results), "--runs", str(settings.runs)]
    assert main(["--status", *args]) == 1
    output = capsys.readouterr().out
    for fact in ("DataError: no folder cifar10", str(log), "1 failed, 1 done"):
        assert fact in output


@pytest.mark.parametrize("stage", ["TIMEOUT", ""])
def test_log_that_cannot_be_read_is_not_shown(
    submission: list[State], settings: Settings, programs: Path, stage: str
) -> None:
    log = settings.runs / ("x" * 300)  # stands for another user's folder: stat raises an error
    for stored in submission:
        state.store(stored.path, stored.content | {"log": str(log)})
    lines = f"1_0|{stage}|None|n1\n1_1|{stage}|None|n1\n"
    (programs / "queue").write_text(lines if stage else "")
    shown = all_states(settings.results)[0]
    assert {item.name for item in shown} == {"failed" if stage else "cancelled"}
    assert {item.log for item in shown} == {""}


def test_failed_cell_of_a_running_job_has_failed(
    submission: list[State], rows: Rows, settings: Settings, programs: Path
) -> None:
    (row,) = rows("in100_knn")
    write_as_job(row.cell, "failed", "DataError: no folder")
    (programs / "queue").write_text("1_0|RUNNING|None|n1\n1_1|RUNNING|None|n1\n")
    assert states(settings) == [("running", ""), ("failed", "DataError: no folder")]
    (programs / "queue").write_text("1_0|RUNNING|None|n1\n1_1|REQUEUED|None|\n")
    assert [name for name, _ in states(settings)] == ["running", "queued"]


def test_page_of_a_run_on_this_machine_does_not_wait_for_the_cluster(
    submission: list[State], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmarks.execution.states, "job_states", Mock(side_effect=AssertionError))
    write_status_page(settings.results, settings.runs)
    assert "2 queued" in (settings.runs / "status.html").read_text()


def test_a_job_that_begins_before_its_submission_is_written_keeps_its_state(
    submission: list[State], rows: Rows, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = rows("voc07_svm")
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")  # as its batch script does
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "3")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    folder = Path(submission[0].content["log"]).parent
    with state.reporting(row.cell):
        _write_submitted(row.cell, "3_0", folder, OPTIONS)
        stored = state.read_state(state_path(row.cell.path))
        assert stored is not None
        assert (stored.name, stored.is_submitted) == ("running", True)
    stored = state.read_state(state_path(row.cell.path))
    assert stored is not None
    assert (stored.name, stored.is_submitted) == ("done", True)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "1")  # of another job
    state.write(row.cell, "running")
    stored = state.read_state(state_path(row.cell.path))
    assert stored is not None
    assert not stored.is_submitted


def test_an_element_that_was_cancelled_before_it_began_is_cancelled(
    submission: list[State], settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_1|PENDING|PartitionTimeLimit|\n")  # Slurm drops 1_0
    (first, _), (second, reason) = states(settings)
    assert (first, second) == ("cancelled", "queued")
    assert "will not start without a change" in reason


def test_a_cell_that_is_queued_is_recognized_through_a_link(
    submission: list[State], rows: Rows, settings: Settings, programs: Path, tmp_path: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|PENDING|Priority|\n")
    link = tmp_path / "link"
    link.symlink_to(settings.results.absolute())
    (row,) = rows("cifar10_knn")
    cell = row.cell.with_request(settings=replace(settings, results=link))
    assert submit_cells([replace(row, cell=cell)], OPTIONS, Cluster({})) == 0


def test_last_job_writes_tables_with_reasons(
    from_file: FromFile,
    settings: Settings,
    programs: Path,
    fill_disk: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = from_file("cifar10_knn", "in100_knn")
    submit(result, settings)
    evaluate(result[0].cell)
    (programs / "queue").write_text("1_1|OUT_OF_MEMORY|None|n1\n")
    assert collect(settings.results) == 0
    assert "OUT_OF_MEMORY" in (settings.results / "tables" / "overview.md").read_text()
    assert retry_failed(settings.results, SlurmOptions(hours=9)) == 1
    job = jobs(settings)["in100_knn"]
    scripts = [path.read_text() for path in programs.glob("job.*")]
    assert sum("#SBATCH --time=540\n" in script for script in scripts) == 1
    (programs / "queue").write_text(f"{job}|PENDING|Priority|\n")
    assert [name for name, _ in states(settings)] == ["done", "queued"]
    assert retry_failed(settings.results, SlurmOptions()) == 0
    (settings.results / "tables" / "overview.md").unlink()  # pages that are right are not written
    fill_disk(str(settings.results))
    assert collect(settings.results) == 1
    assert "the tables are not up to date: " in capsys.readouterr().err


def test_on_another_try_classifiers_are_waited_for_as_well(
    from_file: FromFile, settings: Settings, programs: Path
) -> None:
    submit(from_file("objectnet13_eval", "in100_linear@looc"), settings)
    lines = (f"{job}|TIMEOUT|None|n1\n" for job in jobs(settings).values())
    (programs / "queue").write_text("".join(lines))
    assert retry_failed(settings.results, SlurmOptions()) == 2
    trained = jobs(settings)["in100_linear@looc"].partition("_")[0]
    scripts = [path.read_text() for path in programs.glob("job.*")]
    assert sum(f"--dependency=afterany:{trained}\n" in script for script in scripts) == 1


def end_jobs(settings: Settings, programs: Path) -> None:
    """Let all jobs end at their time limit."""
    lines = (f"{job}|TIMEOUT|None|n1\n" for job in jobs(settings).values())
    (programs / "queue").write_text("".join(lines))


def test_retry_writes_to_the_moved_results(
    from_file: FromFile, settings: Settings, programs: Path, tmp_path: Path
) -> None:
    submit(from_file("cifar10_knn"), settings)
    end_jobs(settings, programs)
    moved = settings.results.rename(tmp_path / "moved")
    assert retry_failed(moved, SlurmOptions()) == 1
    assert not settings.results.exists()
    (stored,) = read_states(moved)
    assert stored.content["request"]["settings"]["results"] == str(moved)


def test_retry_submits_the_other_cells_if_a_checkpoint_is_gone(
    from_file: FromFile,
    other_checkpoint: Path,
    settings: Settings,
    programs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = Path(shutil.copy(other_checkpoint, tmp_path / "gone.pt"))
    submit([*from_file("cifar10_knn", ckpt=gone), *from_file("cifar10_knn")], settings)
    end_jobs(settings, programs)
    gone.unlink()
    args = ["--results", str(settings.results), "--runs", str(settings.runs)]
    assert main(["--retry-failed", *args]) == 1
    assert f"gone cifar10_knn: not submitted: {gone}" in capsys.readouterr().err
    assert len(list(programs.glob("job.*"))) == 4  # two arrays and twice the tables


def test_retry_submits_the_other_cells_if_a_plugin_is_absent(
    from_file: FromFile, settings: Settings, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(from_file("cifar10_knn", "in100_knn"), settings)
    end_jobs(settings, programs)
    stored = read_states(settings.results)[0]
    request = stored.content["request"] | {"task": "cifar10_knn@plugin"}
    state.store(stored.path, stored.content | {"request": request})
    assert retry_failed(settings.results, SlurmOptions()) == 1
    assert "mine cifar10_knn@plugin: not submitted: " in capsys.readouterr().err


def test_retry_names_cells_whose_data_are_missing(
    from_file: FromFile,
    settings: Settings,
    programs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (row,) = from_file("cifar10_knn")
    empty = replace(settings, data=tmp_path / "empty")
    submit([replace(row, cell=row.cell.with_request(settings=empty))], settings)
    end_jobs(settings, programs)
    assert retry_failed(settings.results, SlurmOptions()) == 0
    text = "mine cifar10_knn: not submitted: missing data: cifar10"
    assert text in capsys.readouterr().err


def test_cell_whose_job_was_killed_after_its_record_is_done(
    from_file: FromFile, settings: Settings, programs: Path
) -> None:
    rows = from_file("cifar10_knn")
    submit(rows, settings)
    evaluate(rows[0].cell)
    write_as_job(rows[0].cell, "running", "9/9 steps")
    end_jobs(settings, programs)
    assert states(settings)[0][0] == "failed"
    assert retry_failed(settings.results, SlurmOptions()) == 0
    assert states(settings) == [("done", "")]


def test_a_dry_run_prints_what_sbatch_would_be_given(
    checkpoint: Path,
    small_data: Path,
    settings: Settings,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = f"--slurm --plan --tasks voc07_svm --partition gpu --parallel 1 --ckpt {checkpoint}"
    args += f" --data {small_data} --runs {settings.runs} --results {settings.results}"
    assert main([*args.split(), "--schedule", "smoke"]) == 0
    message = capsys.readouterr().out
    heads = [line for line in message.splitlines() if line.startswith("# ") and "jobs" in line]
    assert heads == ["# mine:VOC-2007-SVM: 1 jobs", "# tables: 1 jobs"]
    assert "# job 0 runs mine voc07_svm seed 0, mine voc07_svm@11point seed 0\n" in message
    assert message.count("#SBATCH --partition=gpu") == 2
    assert not list(programs.glob("job.*"))


def test_plan_needs_no_cluster(
    checkpoint: Path,
    small_data: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    args = f"--slurm --tasks voc07_svm --hours 9 --max-gpus 4 --ckpt {checkpoint}"
    args += f" --data {small_data} --runs {settings.runs} --results {settings.results}"
    assert main([*args.split(), "--plan"]) == 0
    output = capsys.readouterr()
    assert "#SBATCH --time=540\n" in output.out
    assert "sbatch is not installed on this machine" in output.err
    assert "has no accounting" not in output.err  # nobody knows
    assert "GPUs at a time: at most 1\n" in output.out
    assert main(args.split()) == 2


def test_arrays_are_named_after_checkpoints_and_groups_of_tasks(rows: Rows) -> None:
    result = rows("cifar10_knn", "in100_linear@looc", names=("a", "b"), hours=0.1)
    assert [array.name for array in arrays_of(result)] == [
        "a+b:Nearest-neighbors+Linear-probes",
        "tables",
    ]
    many = rows("cifar10_knn", names=("a", "b", "c", "d", "e"))
    assert arrays_of(many)[0].name == "a+b+c+2-more:Nearest-neighbors"


def test_log_is_named_after_its_cell(
    submission: list[State], settings: Settings, programs: Path
) -> None:
    logs = [Path(item.content["log"]) for item in submission]
    assert [log.name for log in logs] == [
        "random.cifar10_knn.uniclr-2022-1.smoke.seed0.err",
        "random.in100_knn.uniclr-2022-1.smoke.seed0.err",
    ]
    assert [log.resolve().name for log in logs] == ["1_0_0_log.err", "1_1_0_log.err"]


def test_tasks_with_a_slash_have_a_log_per_checkpoint(
    rows: Rows, settings: Settings, programs: Path
) -> None:
    submit(rows("transfer_linear/cifar10", names=("a", "b")), settings)
    assert [Path(item.content["log"]).name for item in read_states(settings.results)] == [
        "a.transfer_linear.cifar10.lorac-2021-1.smoke.seed0.err",
        "b.transfer_linear.cifar10.lorac-2021-1.smoke.seed0.err",
    ]


def test_logs_are_below_the_chosen_folder(
    rows: Rows, settings: Settings, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    submit_cells(rows("cifar10_knn"), SlurmOptions(log_folder="logs"), Cluster({}))
    (stored,) = read_states(settings.results)
    assert Path(stored.content["log"]).parents[1] == tmp_path / "logs"
    assert not (settings.runs / "slurm").exists()
    assert stored.content["cluster"]["log_folder"] == str(tmp_path / "logs")


def test_gpus_of_each_array_are_limited(rows: Rows) -> None:
    result = [with_gpus(row, 2) for row in rows("coco_det", "voc0712_det_c4")]
    result += rows("cifar10_knn", "in100_knn", "voc07_svm")
    for options, expected in (
        (SlurmOptions(max_gpus=3), [1, 3]),
        (SlurmOptions(max_gpus=5, parallel=2), [2, 2]),
        (SlurmOptions(max_gpus=3, cell_gpus=0), [0, 0]),
    ):
        arrays = plan_arrays(job_graph(result), options, Path("x"), Cluster({}))
        assert [array.parallel for array, _ in arrays[:-1]] == expected


def test_gpus_of_all_arrays_are_added(rows: Rows) -> None:
    result = [with_gpus(row, 2) for row in rows("coco_det", "voc0712_det_c4")]
    result += rows("cifar10_knn", "in100_knn", "voc07_svm")
    (line,) = gpus_at_a_time(result, SlurmOptions(max_gpus=4), Cluster({}))
    assert line.startswith("GPUs at a time: at most 7 = 4 + 3, ")
    assert not gpus_at_a_time(result, SlurmOptions(), Cluster({}))


def test_job_with_more_gpus_than_the_limit_is_refused(rows: Rows) -> None:
    result = [with_gpus(row, 2) for row in rows("coco_det")]
    with pytest.raises(ValueError, match="--max-gpus 1: coco_det trains on 2 GPUs"):
        plan_arrays(job_graph(result), SlurmOptions(max_gpus=1), Path("x"), Cluster({}))


@pytest.mark.parametrize(
    ("page", "options"),
    [
        ("docs/howto/cluster.md", SlurmOptions()),
        ("docs/howto/cluster.md", Queue()),
    ],
)
def test_each_option_is_documented(page: str, options: object) -> None:
    text = (Path(__file__).parents[3] / page).read_text()
    names = [name.replace("_", "-") for name in vars(options) if name != "queue"]
    missing = [name for name in names if not re.search(f"`[^`]*--{name}[ `]", text)]
    assert not missing


def with_gpus(row: PlannedCell, gpus: int) -> PlannedCell:
    return replace(row, cell=replace_gpus(row.cell, gpus))


def test_a_machine_with_few_gpus_submits_detectors_for_nodes_with_more(
    checkpoint: Path, settings: Settings, programs: Path
) -> None:
    args = f"--slurm --tasks coco_det --engine torchvision --ckpt {checkpoint}"
    args += f" --data {settings.data} --runs {settings.runs} --results {settings.results}"
    with assume_gpus(1):
        assert main([*args.split(), "--schedule", "smoke"]) == 0
    scripts = "".join(path.read_text() for path in programs.glob("job.*"))
    assert scripts.count("--gpus-per-node=4") == 1
