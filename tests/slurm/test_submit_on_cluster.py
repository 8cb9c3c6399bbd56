"""Arrays on a real cluster: parallel jobs, order, resources, and refused requests."""

import sys
from pathlib import Path

import pytest

from slurm.cluster import ClusterError, cluster
from slurm.requeue import Command
from slurm.resources import Queue, Resources
from slurm.state import last_log_line, log_path
from slurm.submit import PROJECT, Array, submit
from tests.slurm.conftest import wait_for_all, wait_until
from tests.slurm.pretend_cluster import PretendCluster
from tests.slurm.test_faults_on_cluster import bash
from tests.slurm.test_submit import staging_file

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]
SMALL = Resources(cpus=1, hours=1)
SPAN = "date +%s.%N > {file}; sleep 1; date +%s.%N >> {file}"


def span(file: Path) -> tuple[float, float]:
    start, end = map(float, file.read_text().split())
    return start, end


def test_an_array_keeps_its_bound_and_the_next_one_waits_for_it(folder: Path) -> None:
    files = [folder / str(number) for number in range(5)]
    workspace = [bash(SPAN.format(file=file)) for file in files]
    broken = bash("exit 1")  # whatever becomes of the first array
    first = Array(name="first", commands=(*workspace[:4], broken), resources=SMALL, parallel=2)
    then = Array(name="then", commands=(workspace[4],), resources=SMALL, dependencies=(0,))
    jobs = submit([first, then], Queue(), folder, cluster())
    states = wait_for_all([*jobs[0], *jobs[1]])
    assert [states[job].slurm_state for job in jobs[0]] == ["COMPLETED"] * 4 + ["FAILED"]
    spans = [span(file) for file in files]
    assert all(
        sum(second[0] <= start < second[1] for second in spans[:4]) <= 2 for start, _ in spans[:4]
    )
    assert spans[4][0] > max(end for _, end in spans[:4])


def test_a_job_sees_the_gpus_and_processors_it_asked_for(folder: Path) -> None:
    show = bash(f"echo $CUDA_VISIBLE_DEVICES $SLURM_CPUS_PER_TASK > {folder}/$SLURM_JOB_ID")
    requested = Resources(gpus=3, processes=1, cpus=2, hours=1)
    two = Array(name="gpus", commands=(show, show), resources=requested)
    (jobs,) = submit([two], Queue(sbatch=("nodelist=127.0.0.1",)), folder, cluster())
    wait_for_all(jobs)
    lines = [path.read_text().split() for path in folder.glob("[0-9]*") if path.suffix == ""]
    observed = [line[0].split(",") for line in lines if len(line) == 2]
    assert [len(gpus) for gpus in observed] == [3, 3]
    assert [line[1] for line in lines if len(line) == 2] == ["2", "2"]


def test_logs_are_in_a_folder_with_a_percent_sign(folder: Path) -> None:
    logs = folder / "10%subset of {all}"
    job = Array(name="one", commands=(bash("echo alone >&2"),), resources=SMALL)
    two = Array(name="two", commands=(bash("echo one >&2"), bash("echo two >&2")), resources=SMALL)
    jobs = submit([job, two], Queue(), logs, cluster())
    states = wait_for_all([id_ for ids in jobs for id_ in ids])
    assert {state.slurm_state for state in states.values()} == {"COMPLETED"}
    args = [last_log_line(log_path(logs, id_)) for ids in jobs for id_ in ids]
    assert args == ["alone", "one", "two"]


def test_a_broken_environment_ends_the_job_and_says_why(folder: Path) -> None:
    job = Array(name="setup", commands=(bash("true"),), resources=SMALL)
    ((id_,),) = submit([job], Queue(setup=("module load cuda",)), folder, cluster())
    assert wait_for_all([id_])[id_].slurm_state == "FAILED"
    sentence = "the job ends before its command, since this line of --setup failed: "
    assert last_log_line(log_path(folder, id_)) == f"{sentence}module load cuda"


def container(folder: Path) -> Path:
    """A fake container: it has separate packages, and lacks Slurm's programs."""
    image = folder / "image"
    image.write_text(
        f'#!/bin/bash\nexport PYTHONPATH="{PROJECT}${{PYTHONPATH:+ and $PYTHONPATH}}"\n'
        f'PATH=/nowhere exec {sys.executable} "$@"\n'
    )
    image.chmod(0o700)
    return image


def test_job_in_a_container_is_started_again(folder: Path) -> None:
    image = container(folder)
    program = f"""
import os, sys
with open("{folder}/starts", "a") as file:
    print(os.environ["PATH"], os.environ["PYTHONPATH"], sys.executable, file=file)
sys.exit(75 * (os.environ.get("SLURM_RESTART_COUNT", "0") == "0"))
"""
    job = Array(name="image", commands=(Command(("-c", program), of_python=True),), resources=SMALL)
    ((id_,),) = submit([job], Queue(python=str(image)), folder, cluster())
    assert wait_for_all([id_])[id_].slurm_state == "COMPLETED"
    starts = (folder / "starts").read_text().splitlines()
    assert starts == [f"/nowhere {PROJECT} {sys.executable}"] * 2


def test_documented_staging_copies_once_for_all_jobs_of_a_node(folder: Path) -> None:
    queue = Queue(setup_file=str(staging_file(folder)), sbatch=("nodelist=127.0.0.1",))
    workspace = tuple(bash(f"ls {folder}/local/imagenet > {folder}/{n}") for n in range(4))
    (jobs,) = submit(
        [Array(name="mine", commands=workspace, resources=SMALL)], queue, folder, cluster()
    )
    assert {state.slurm_state for state in wait_for_all(jobs).values()} == {"COMPLETED"}
    assert [(folder / str(n)).read_text() for n in range(4)] == ["image\n"] * 4


def test_resources_that_the_cluster_lacks_are_refused(
    folder: Path, pretend: PretendCluster
) -> None:
    for requested, queue in (
        (SMALL, Queue(partition="nosuch")),
        (Resources(gpus=9, hours=1), Queue()),
        (Resources(nodes=3, hours=1), Queue()),
        (SMALL, Queue(constraint="h200")),
    ):
        arrays = [
            Array(name=name, commands=(bash("true"),), resources=size)
            for name, size in (("fine", SMALL), ("refused", requested))
        ]
        with pytest.raises(ClusterError, match="was not submitted"):
            submit(arrays, queue, folder, cluster())
        wait_until(lambda: pretend.tell("squeue", "--noheader") == "")


def test_without_its_controller_nothing_is_half_submitted(
    folder: Path, pretend: PretendCluster
) -> None:
    unreachable = cluster()
    (warning,) = unreachable.warnings()
    assert "AccountingStorageType=" in warning
    job = Array(name="late", commands=(bash("true"),), resources=SMALL)
    pretend.stop_controller()
    try:
        with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
            cluster()
        with pytest.raises(ClusterError):
            submit([job, job], Queue(), folder, unreachable)
    finally:
        pretend.start_controller()
        pretend.wait_for_nodes()
    assert pretend.tell("squeue", "--noheader") == ""
