"""The benchmark on a real cluster gives the local records, despite failures."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.execution.states import States, all_states
from benchmarks.follow import follow
from benchmarks.planning.options import FollowOptions, RunAll, SlurmOptions
from benchmarks.run_all import main, run
from slurm.cluster import ask, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.submit import Array, submit
from tests.campaign.outcome import result_of
from tests.slurm.conftest import wait_for_all, wait_until
from tests.slurm.pretend_cluster import PretendCluster
from tests.slurm.test_faults_on_cluster import running
from tests.slurm.test_submit_on_cluster import container
from tests.transfer.cells.many_images import generate_many
from transfer.cells.request import Settings
from transfer.datasets.synthetic.generate import generate
from transfer.record import read_record

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]
TASKS = "in100_knn,voc07_svm,voc07_svm@11point"


@pytest.fixture
def request_here(checkpoint: Path, small_data: Path, folder: Path) -> RunAll:
    """Three demo tasks on a checkpoint and its random twin: six evaluations.

    Four of them share features. Every path has spaces in it.
    """
    home = folder / "my own suite"
    home.mkdir()
    (home / "all data").symlink_to(small_data)
    (home / "mine too.pth").symlink_to(checkpoint)
    return RunAll(
        ckpt=(home / "mine too.pth",),
        name=("mine",),
        random=True,
        settings=Settings(
            data=home / "all data",
            results=home / "here",
            runs=home / "runs-here",
            schedule="smoke",
        ),
        tasks=TASKS,
    )


def of_data(request: RunAll, data: Path, tasks: str) -> RunAll:
    """The same request for other data and tasks, without the random twin."""
    settings = replace(request.settings, data=data)
    return replace(request, settings=settings, tasks=tasks, random=False)


def on_cluster(request: RunAll) -> RunAll:
    """The same request, for the cluster."""
    home = request.settings.results.parent
    options = SlurmOptions(slurm=True, parallel=2, cpus=1)
    settings = replace(request.settings, results=home / "there", runs=home / "runs")
    return replace(request, settings=settings, cluster=options)


def finished(request: RunAll) -> States:
    """Wait for the tables of the last submission."""
    folder = submissions(request)[-1]
    jobs = ask("squeue", "--me", "--states=all", "--noheader", "--array", "--format=%i|%k")
    lines = (line.partition("|") for line in jobs.splitlines())
    wait_for_all([job for job, _, comment in lines if comment == str(folder)])
    return all_states(request.settings.results)[0]


def submissions(request: RunAll) -> list[Path]:
    """Folders of submissions, oldest first."""
    return sorted((request.settings.runs / "slurm").absolute().iterdir())


def load_records(results: Path) -> dict[str, dict[str, Any]]:
    """Records without location, time and load."""
    files = sorted(results.glob("records/*/*.seed?.json"))
    return {str(f.relative_to(results)): result_of(json.loads(f.read_text())) for f in files}


def test_six_cells_in_an_array_leave_the_records_of_a_local_run(request_here: RunAll) -> None:
    request = on_cluster(request_here)
    assert run(request) == 0
    result = finished(request)
    assert [status.name for status in result] == ["done"] * 6, result
    assert run(request_here) == 0
    assert load_records(request.settings.results) == load_records(request_here.settings.results)
    assert len(load_records(request.settings.results)) == 6
    assert "mine" in (request.settings.results / "tables" / "overview.md").read_text()
    assert len(submissions(request)) == 1
    run(request)  # all is recorded
    assert len(submissions(request)) == 1


def test_followed_checkpoint_is_evaluated_by_a_job(request_here: RunAll) -> None:
    request, (checkpoint,) = on_cluster(request_here), request_here.ckpt
    training = checkpoint.parent / "training"
    training.mkdir()
    shutil.copy(checkpoint, training / "epoch3.pth")
    following = FollowOptions(follow=training, settle_s=1.0, until=training)
    request = replace(request, ckpt=(), random=False, tasks="in100_knn", following=following)
    assert follow(request, run) == 0
    (state,) = all_states(request.settings.results)[0]
    assert (state.identity[0], state.name) == ("mine@epoch3", "done")
    assert state.stored.is_submitted
    (file,) = request.settings.results.glob("records/snapshots/mine@epoch3/*.seed0.json")
    record = read_record(file)
    assert record.details["rankme"]["value"] > 1
    assert record.request["checkpoint"]["origin"]["epoch"] == "3"
    assert [path.name for path in (request.settings.runs / "follow" / "mine").iterdir()] == ["lock"]


def test_cell_runs_in_a_container_and_has_a_log_of_its_name(
    request_here: RunAll, folder: Path
) -> None:
    request = of_data(on_cluster(request_here), request_here.settings.data, "in100_knn")
    options = replace(request.cluster, queue=Queue(python=str(container(folder))))
    request = replace(request, cluster=options)
    assert run(request) == 0
    ((cell,), _) = all_states(request.settings.results)
    assert [item.name for item in finished(request)] == ["done"]
    log = Path(cell.stored.content["log"])
    assert log.name == "mine.in100_knn.uniclr-2022-1.smoke.seed0.err"
    assert "in100 test" in log.read_text()


def test_failed_cell_stores_its_reason_until_it_succeeds(
    request_here: RunAll, capsys: pytest.CaptureFixture[str]
) -> None:
    home = request_here.settings.results.parent
    generate(home / "data", keys=("cifar10", "dtd"))
    request = of_data(on_cluster(request_here), home / "data", "cifar10_knn,dtd_knn")
    images = home / "data" / "dtd" / "dtd" / "images"
    shutil.move(images, home / "images")
    images.mkdir()
    assert run(request) == 0
    good, bad = finished(request)
    assert (good.name, bad.name) == ("done", "failed")
    assert "DataError" in bad.detail
    assert "DataError" in (request.settings.results / "tables" / "overview.md").read_text()
    assert main(["--status", "--results", str(request.settings.results)]) == 1
    assert bad.log in capsys.readouterr().out
    images.rmdir()
    shutil.move(home / "images", images)
    main(["--retry-failed", "--results", str(request.settings.results)])
    assert [status.name for status in finished(request)] == ["done", "done"]


@pytest.mark.parametrize("fault", ["signal to all", "preemption"])
def test_a_disturbed_cell_ends_with_the_record_of_an_undisturbed_one(
    request_here: RunAll, pretend: PretendCluster, fault: str
) -> None:
    """The evaluation has loader processes, which signals to the job reach, too."""
    home = request_here.settings.results.parent
    generate_many(home / "many images")
    local = of_data(request_here, home / "many images", "cifar10_linear")
    request = on_cluster(local)
    assert run(request) == 0
    ((cell,), _) = all_states(request.settings.results)
    file = submissions(request)[0] / "0-0.json"
    wait_until(lambda: len(running(str(file), "transfer.cells.job")) > 1)
    if fault == "preemption":
        preempt(home / "urgent")
    else:
        pretend.tell("scancel", "--full", "--signal=TERM", cell.stored.content["job"])
    assert [item.name for item in finished(request)] == ["done"]
    if fault == "preemption":  # srun ends a step at once when it is signalled itself
        errors = Path(cell.stored.content["log"]).resolve()
        assert "is queued again" in errors.with_suffix(".out").read_text()
        output = errors.read_text()
        assert re.search("stopped by SIG(TERM|USR2). Run the same command to resume", output)
    assert run(local) == 0
    assert load_records(request.settings.results) == load_records(local.settings.results)


def test_a_preempted_extraction_of_two_encoders_ends_with_the_records_of_separate_runs(
    request_here: RunAll,
) -> None:
    home = request_here.settings.results.parent
    generate_many(home / "many images")
    single = of_data(request_here, home / "many images", "cifar10_knn")
    request = replace(on_cluster(single), random=True)
    assert run(request) == 0
    (file,) = submissions(request)[0].glob("0-*.json")  # one job of both
    wait_until(lambda: len(running(str(file), "transfer.cells.job")) > 1)
    preempt(home / "urgent")
    assert [item.name for item in finished(request)] == ["done"] * 2
    records = load_records(request.settings.results)
    assert run(single) == 0
    (ours,) = load_records(single.settings.results).items()
    assert ours in records.items()


def preempt(folder: Path) -> None:
    """Let a job that needs both nodes preempt all other jobs."""
    array = Array(
        name="urgent",
        commands=(Command(("sleep", "1")),),
        resources=Resources(nodes=2, cpus=64, hours=1),
    )
    ((job,),) = submit([array], Queue(partition="urgent"), folder, cluster())
    wait_for_all([job])
