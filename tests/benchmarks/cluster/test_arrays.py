"""Which arrays become of a plan, and what is known of them later; no cluster is needed."""

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.cluster.arrays import (
    MARGIN,
    cancel_all,
    check_submitted_weights,
    plan_arrays,
    retry_failed,
    submit_cells,
)
from benchmarks.cluster.cell_status import (
    Submission,
    collect,
    failed_helper_lines,
    read_submission,
    submitted_states,
)
from benchmarks.execution.jobs import PREPARE, THEN
from benchmarks.execution.states import write_run_file
from benchmarks.planning.options import SlurmOptions
from benchmarks.planning.plan import PlannedCell
from benchmarks.run_all import main
from benchmarks.status import all_states
from benchmarks.status import main as status
from pretrain.running.processes import assume_gpus
from slurm.cluster import Cluster, ClusterError
from slurm.requeue import Command
from slurm.submit import Array
from tests.benchmarks.conftest import Rows
from tests.slurm.fake_programs import fake_programs
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.record import write_failure

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
    """Slurm's programs without a cluster behind them; what is in `queue` is what squeue says."""
    return fake_programs(tmp_path / "bin", monkeypatch, **PROGRAMS)


@pytest.fixture
def submission(rows: Rows, settings: Settings, programs: Path) -> Submission:
    """Two cells in an array, jobs 1_0 and 1_1, and the tables' job 2."""
    return submit(rows("cifar10_knn", "in100_knn"), settings)


def states(settings: Settings) -> list[tuple[str, str]]:
    return [(one.state, one.detail) for one in submitted_states(settings.runs)[0]]


def submit(rows: list[PlannedCell], settings: Settings) -> Submission:
    submission = submit_cells(rows, OPTIONS, settings.runs, Cluster({}))
    assert submission is not None
    return submission


def arrays_of(rows: list[PlannedCell], most_minutes: float = math.inf) -> list[Array]:
    where = Cluster({}, {"": most_minutes})
    return [array for array, _ in plan_arrays(rows, OPTIONS, Path("x"), where)]


def test_cells_of_one_size_are_one_array_and_the_tables_come_last(rows: Rows) -> None:
    found = rows("cifar10_knn", "in100_knn", "voc07_svm", hours=0.1)
    cells, tables = arrays_of(found)
    assert (len(cells.work), cells.parallel, cells.after, cells.resources.hours) == (3, 2, (), 1)
    assert (len(tables.work), tables.after) == (1, (0,))
    found[0] = replace(found[0], gpu_hours=5.0)
    assert [array.resources.hours for array in arrays_of(found)] == [5 * MARGIN, 1, 1]
    assert [array.resources.hours for array in arrays_of(found, 30)] == [0.5, 0.5]


PASS = ("in100_linear@jcl", "in100_linear@looc")


def test_cells_of_one_pass_have_one_job_and_a_state_each(
    rows: Rows, settings: Settings, programs: Path
) -> None:
    submission = submit(rows(*PASS), settings)
    assert len(submission.cells) == 2
    (job,) = {cell.job for cell in submission.cells}
    (programs / "queue").write_text(f"{job}|RUNNING|None|n1\n")
    done = Path(submission.cells[0].record)
    done.parent.mkdir(parents=True, exist_ok=True)
    done.write_text("{}")
    assert [state for state, _ in states(settings)] == ["done", "running"]
    (programs / "queue").write_text(f"{job}|TIMEOUT|None|n1\n")
    assert [state for state, _ in states(settings)] == ["done", "failed"]
    done.unlink()
    (again,) = retry_failed(settings.runs, SlurmOptions())
    assert [cell.key for cell in again.cells] == list(PASS)
    assert len({cell.job for cell in again.cells}) == 1


def test_several_backbones_pass_the_images_of_a_classifiers_cells_together(rows: Rows) -> None:
    keys = ("imagenet_c100_eval", "in100_linear@looc", "voc07_svm", "voc07_svm@11point")
    found = rows(*keys, names=("mine", "random"))
    own, passed, *cells, _ = arrays_of(found)
    (work,) = passed.work
    assert isinstance(work, Command)
    words = work.words[work.words.index(PREPARE) :]
    assert words[1] == "imagenet_c100_eval"
    assert (words.count("--ckpt"), words.count(THEN)) == (2, 1)
    assert (len(own.work), own.after, passed.after) == (2, (), ())
    # SVMs wait for their own features only, corruptions for theirs and for the classifiers
    assert sorted(array.after for array in cells) == [(), (0,), (1, 2)]


def test_what_cannot_be_written_down_is_taken_back(
    rows: Rows, settings: Settings, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError("no space left on device")
    monkeypatch.setattr(Submission, "save", Mock(side_effect=full))
    with pytest.raises(ClusterError, match=r"no space left on device; what had .* is cancelled"):
        submit(rows("cifar10_knn"), settings)
    assert (programs / "cancelled").read_text().split() == ["1", "2"]


def test_what_waits_already_is_not_submitted_again_and_can_be_cancelled(
    submission: Submission, rows: Rows, settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    assert read_submission(submission.folder / "submission.json") == submission
    assert [cell.job for cell in submission.cells] == ["1_0", "1_1"]
    assert submission.helpers == ("2",)
    found = rows("cifar10_knn", "in100_knn")
    assert submit_cells(found, OPTIONS, settings.runs, Cluster({})) is None
    found[1:] = rows("voc07_svm")
    more = submit(found, settings)
    assert [cell.key for cell in more.cells] == ["voc07_svm"]
    (programs / "queue").write_text("1_0|COMPLETED|None|n1\n1_1|RUNNING|None|n1\n2|PENDING|x|\n")
    assert cancel_all(settings.runs) == 2
    assert sorted((programs / "cancelled").read_text().split()) == ["1_1", "2"]


def test_queued_cells_of_other_weights_keep_their_name(
    submission: Submission, rows: Rows, settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    (row,) = rows("voc07_svm")
    check_submitted_weights([row], settings.runs)
    other = replace(row.cell, backbone=replace(row.cell.backbone, sha256="0" * 64))
    with pytest.raises(ValueError, match=r"job 1_0 .* other weights .*--name"):
        check_submitted_weights([replace(row, cell=other)], settings.runs)
    elsewhere = other.asking(settings=replace(settings, results=settings.results / "other"))
    check_submitted_weights([replace(row, cell=elsewhere)], settings.runs)


def test_each_state_is_told_from_what_there_is(
    submission: Submission,
    rows: Rows,
    settings: Settings,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = rows("cifar10_knn", "in100_knn")
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    log = submission.folder / "1_1_0_log.err"
    log.write_text("12:00:31  train  3/9 steps\n")
    assert states(settings) == [("queued", "Priority"), ("running", "12:00:31  train  3/9 steps")]
    evaluate(first.cell)
    log.write_text("error: no such file\n")
    (submission.folder / "1_1_0_result.pkl").write_bytes(
        pickle.dumps(("error", "Traceback\nslurm.requeue.CommandError: exit status 2"))
    )
    (programs / "queue").write_text("")
    assert states(settings) == [("done", ""), ("failed", "exit status 2; error: no such file")]
    (programs / "queue").write_text("2|OUT_OF_MEMORY|None|n1\n")
    (line,) = failed_helper_lines(settings.runs)
    assert line.startswith("tables failed: OUT_OF_MEMORY on n1")
    write_failure(second.cell.path, {"reason": "DataError: no folder cifar10"})
    capsys.readouterr()
    words = ["--runs", str(settings.runs), "--results"]
    assert status([*words, str(settings.results)]) == 1
    shown = capsys.readouterr().out
    for fact in ("DataError: no folder cifar10", str(log), "1 failed, 1 done"):
        assert fact in shown
    assert status([*words, "others"]) == 2


def test_an_element_that_was_cancelled_before_it_began_is_cancelled(
    submission: Submission, settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_1|PENDING|PartitionTimeLimit|\n")  # Slurm drops 1_0
    (first, _), (second, reason) = states(settings)
    assert (first, second) == ("cancelled", "queued")
    assert "waiting does not help" in reason


def test_a_cell_that_is_queued_is_recognized_through_a_link(
    submission: Submission, rows: Rows, settings: Settings, programs: Path, tmp_path: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|PENDING|Priority|\n")
    link = tmp_path / "link"
    link.symlink_to(settings.results.absolute())
    (row,) = rows("cifar10_knn")
    cell = row.cell.asking(settings=replace(settings, results=link))
    again = [replace(row, cell=cell)]
    assert submit_cells(again, OPTIONS, settings.runs, Cluster({})) is None


def test_a_cell_of_this_machine_and_of_the_cluster_is_shown_once(
    submission: Submission, rows: Rows, settings: Settings, programs: Path
) -> None:
    (programs / "queue").write_text("1_0|PENDING|Priority|\n1_1|RUNNING|None|n1\n")
    write_run_file([rows("cifar10_knn")[0].cell], settings.runs)
    found, _ = all_states(settings.runs)
    assert [one.cell.key for one in found] == ["cifar10_knn", "in100_knn"]


def test_the_last_job_writes_tables_with_the_reasons_and_what_failed_is_submitted_once_more(
    submission: Submission,
    rows: Rows,
    settings: Settings,
    programs: Path,
    fill_disk: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate(rows("cifar10_knn")[0].cell)
    (programs / "queue").write_text("1_1|OUT_OF_MEMORY|None|n1\n")
    assert collect(submission.folder / "submission.json") == 0
    assert "OUT_OF_MEMORY" in (settings.results / "tables" / "overview.md").read_text()
    (again,) = retry_failed(settings.runs, SlurmOptions(hours=9))
    assert [(cell.key, cell.resources.hours) for cell in again.cells] == [("in100_knn", 9)]
    assert again.cells[0].words == submission.cells[1].words
    (programs / "queue").write_text(f"{again.cells[0].job}|PENDING|Priority|\n")
    assert [state for state, _ in states(settings)] == ["done", "queued"]
    assert retry_failed(settings.runs, SlurmOptions()) == []
    (settings.results / "tables" / "overview.md").unlink()  # pages that are right are not written
    fill_disk(str(settings.results))
    assert collect(submission.folder / "submission.json") == 1
    assert "the tables are not up to date: " in capsys.readouterr().err


def test_on_another_try_classifiers_are_waited_for_as_well(
    rows: Rows, settings: Settings, programs: Path
) -> None:
    found = rows("objectnet13_eval", "in100_linear@looc")
    submit(found, settings)
    (programs / "queue").write_text("1_0|TIMEOUT|None|n1\n2_0|TIMEOUT|None|n1\n")
    (again,) = retry_failed(settings.runs, SlurmOptions())
    assert [cell.key for cell in again.cells] == ["in100_linear@looc", "objectnet13_eval"]
    trained = again.cells[0].job.partition("_")[0]
    scripts = [path.read_text() for path in programs.glob("job.*")]
    assert sum(f"--dependency=afterany:{trained}\n" in script for script in scripts) == 1


def test_a_dry_run_prints_what_sbatch_would_be_given(
    checkpoint: Path,
    small_data: Path,
    settings: Settings,
    programs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = f"--slurm --plan --tasks voc07_svm --partition gpu --parallel 1 --ckpt {checkpoint}"
    words += f" --data {small_data} --runs {settings.runs} --results {settings.results}"
    assert main([*words.split(), "--schedule", "smoke"]) == 0
    said = capsys.readouterr().out
    heads = [line for line in said.splitlines() if line.startswith("# ") and "jobs" in line]
    assert heads == ["# extract: 1 jobs", "# cells: 2 jobs", "# tables: 1 jobs"]
    assert said.count("#SBATCH --partition=gpu") == 3
    assert "#SBATCH --array=0-1%1" in said
    assert not list(programs.glob("job.*"))


def test_a_machine_with_few_gpus_submits_detectors_for_nodes_with_more(
    checkpoint: Path, settings: Settings, programs: Path
) -> None:
    words = f"--slurm --tasks coco_det --engine torchvision --ckpt {checkpoint}"
    words += f" --data {settings.data} --runs {settings.runs} --results {settings.results}"
    with assume_gpus(1):
        assert main([*words.split(), "--schedule", "smoke"]) == 0
    scripts = "".join(path.read_text() for path in programs.glob("job.*"))
    assert scripts.count("--gpus-per-node=4") == 1
