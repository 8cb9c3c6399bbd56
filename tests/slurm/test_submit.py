"""The script of sbatch.

A submission is accepted completely or cancelled.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from slurm.__main__ import main
from slurm.cluster import Cluster, ClusterError, NoResponseError
from slurm.requeue import Command
from slurm.resources import Queue, RequestError, Resources
from slurm.submit import PROJECT, Array, hide_variables, script, submit
from tests.slurm.fake_programs import fake_programs

JOB = Command(("true",))
SBATCH = """
echo "$(grep -c . "$1") $(grep dependency= "$1") $(grep array= "$1")" >> {folder}/accepted
number=$(wc -l < {folder}/accepted)
[ $number -le {accepted} ] || {{ echo "Invalid qos specification" >&2; exit 1; }}
echo "Submitted batch job $number"
"""


def a_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch, *, accepted: int) -> None:
    """Fake programs that accept this number of arrays and refuse the next."""
    sbatch = SBATCH.format(folder=folder, accepted=accepted)
    scancel = f'echo "$@" >> {folder}/cancelled'
    fake_programs(folder, monkeypatch, sbatch=sbatch, scancel=scancel, srun="")


def array(number: int, dependencies: tuple[int, ...] = ()) -> Array:
    return Array(
        name="cells", commands=(JOB,) * number, resources=Resources(), dependencies=dependencies
    )


OPTIONS = """array=0-5%2 nodes=2 gpus-per-node=a100:2 ntasks-per-node=1 cpus-per-task=4 mem=1536MB
time=180 partition=cpu qos=high account=me constraint=big exclude='n[1-2]'
signal=USR2@120 requeue"""


def test_the_script_asks_for_what_the_array_asks_for() -> None:
    size = Resources(nodes=2, gpus=2, processes=1, cpus=4, memory_gb=1.5, hours=3)
    requested = replace(array(6), resources=size, parallel=2, partition="cpu")
    names = {"qos": "high", "account": "me", "constraint": "big", "exclude_nodes": "n[1-2]"}
    queue = Queue(partition="gpu", gpu_type="a100", setup=("module load cuda",), **names)  # type: ignore[arg-type]
    text = script(requested, queue, Path("/shared/jobs"))
    assert {f"#SBATCH --{option}" for option in OPTIONS.split()} <= set(text.splitlines())
    (line,) = [line for line in text.splitlines() if "srun" in line]
    assert "--cpus-per-task=4" in line
    assert "--kill-on-bad-exit=1" in line
    assert text.index("module load cuda || {") < text.index("srun")
    assert "a100" not in script(array(1), queue, Path("/x"))  # no GPU is requested
    assert [Resources(gpus=n).processes_per_node for n in (8, 0)] == [8, 1]
    for hours, time, signal_s in ((0.01, 1, 20), (0.05, 3, 60)):  # a warning within its time
        lines = script(replace(array(1), resources=Resources(hours=hours)), Queue(), Path("/x"))
        assert f"#SBATCH --time={time}\n" in lines
        assert f"#SBATCH --signal=USR2@{signal_s}\n" in lines


def test_percent_in_a_folder_is_escaped_for_slurm() -> None:
    folder = Path("/shared/10%subset")
    for number, job in ((1, "%j"), (2, "%A_%a")):
        text = script(array(number), Queue(), folder)
        assert f"#SBATCH --output=/shared/10%%subset/{job}_0_log.out\n" in text
        assert f"#SBATCH --error=/shared/10%%subset/{job}_0_log.err\n" in text
        (line,) = [line for line in text.splitlines() if line.startswith("srun")]
        assert line.index("10%%subset") > line.rindex("/shared/10%subset/")  # the last one counts
        assert f"--error=/shared/10%%subset/{job}_%t_log.err" in line
    for name in ("10%test", "%j", "5%all", "100%A"):
        with pytest.raises(ClusterError, match="Pass a path without %j"):
            script(array(1), Queue(), Path("/shared") / name / "jobs")


def test_what_was_accepted_before_a_refusal_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=2)
    with pytest.raises(
        ClusterError, match=r"(?s)cells was not submitted from .*: .*Invalid qos.*cancelled"
    ):
        submit([array(2), array(1), array(1)], Queue(), tmp_path / "jobs", Cluster({}))
    assert (tmp_path / "cancelled").read_text().split() == ["1_0", "1_1", "2"]


def test_missing_response_to_sbatch_is_not_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
    fake_programs(tmp_path, monkeypatch, sbatch=f"echo '{message}' >&2; exit 1", srun="")
    with pytest.raises(NoResponseError, match="nothing was submitted"):
        submit([array(1)], Queue(), tmp_path / "jobs", Cluster({}))


def test_too_large_array_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=9)
    arrays = [array(5), replace(array(5), parallel=2), array(1, dependencies=(0, 1))]
    small_cluster = Cluster({"MaxArraySize": "3"})
    free, bounded, _ = submit(arrays, Queue(), tmp_path / "jobs", small_cluster)
    assert free == ["1_0", "1_1", "2_0", "2_1", "3"]
    assert bounded == ["4_0", "4_1", "5_0", "5_1", "6"]
    accepted = (tmp_path / "accepted").read_text().splitlines()
    waits = [re.findall("afterany:[0-9:]+", line) for line in accepted]
    assert waits == [[], [], [], [], ["afterany:4"], ["afterany:5"], ["afterany:1:2:3:4:5:6"]]


def test_what_was_accepted_unknown_to_us_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while an accepted array's pickles are moved."""
    a_cluster(tmp_path, monkeypatch, accepted=9)
    fake_programs(tmp_path, monkeypatch, squeue=f"echo '1|{tmp_path}/jobs'; echo '8|other'")
    full = Mock(side_effect=OSError("no space left on device"))
    monkeypatch.setattr("submitit.core.utils.JobPaths.move_temporary_file", full)
    with pytest.raises(ClusterError, match=r"no space left on device; .* were cancelled"):
        submit([array(2)], Queue(), tmp_path / "jobs", Cluster({}))
    assert (tmp_path / "cancelled").read_text().split() == ["1"]


def test_a_job_hands_nothing_on_to_what_it_submits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name in ("SLURM_CONF", "SLURM_NTASKS", "SBATCH_ACCOUNT", "RANK"):
        monkeypatch.setenv(name, "1")
    previous = dict(os.environ)
    with hide_variables(()):
        assert dict(os.environ) == previous
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with hide_variables(()):
        assert previous.keys() - os.environ.keys() == {"SLURM_NTASKS", "RANK"}
        assert "SLURM_JOB_ID" not in os.environ
    assert dict(os.environ) == previous | {"SLURM_JOB_ID": "7"}


def test_options_of_the_shell_do_not_replace_options_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = {"PARTITION": "urgent", "TIMELIMIT": "7", "NO_REQUEUE": "1", "ARRAY_INX": "0-3"}
    shell |= {"ACCOUNT": "mine", "MEM_PER_CPU": "1G", "GPUS": "1", "WAIT": "1", "QOS": "slow"}
    for name, value in shell.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    sbatch = f"env | grep ^SBATCH_ >> {tmp_path}/seen; echo Submitted batch job 1"
    fake_programs(tmp_path, monkeypatch, sbatch=sbatch, srun="")
    size = Resources(memory_gb=1, hours=0.5)
    item = replace(array(1), resources=size)
    submit([item], Queue(partition="low", sbatch=("qos=fast",)), tmp_path / "jobs", Cluster({}))
    assert set((tmp_path / "seen").read_text().split()) == {"SBATCH_ACCOUNT=mine", "SBATCH_GPUS=1"}
    (note,) = capsys.readouterr().err.splitlines()
    assert "SBATCH_PARTITION=urgent" in note
    assert "ACCOUNT" not in note
    assert os.environ["SBATCH_WAIT"] == "1"


def test_the_documented_setup_with_conda_works_in_the_bash_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # conda's program cannot activate; what its hook prints defines a function that can
    hook = 'conda() { [ "$*" = "activate ssl" ] && export ENVIRONMENT=ssl; }'
    conda = f"[ \"$*\" = 'shell.bash hook' ] && echo '{hook}'"
    fake_programs(tmp_path, monkeypatch, conda=conda, module="true", srun="echo in $ENVIRONMENT")
    page = Path(__file__).parents[2] / "docs/howto/cluster.md"
    (args,) = re.findall(r"`--setup ([^`]*)`", page.read_text())
    text = script(array(1), Queue(setup=tuple(shlex.split(args))), tmp_path / "jobs")
    completed = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert (completed.stdout.strip(), completed.stderr, completed.returncode) == ("in ssl", "", 0)


STAGING = re.compile("```bash\n(# stage.sh.*?)```", re.DOTALL)


def staging_file(folder: Path) -> Path:
    """The documented setup file, for data and a disk in this folder."""
    page = (Path(__file__).parents[2] / "docs/howto/cluster.md").read_text()
    (text,) = STAGING.findall(page)
    text = text.replace(
        "shared=/datasets local=/tmp/$USER/data", f"shared={folder}/datasets local={folder}/local"
    )
    for key in ("imagenet", "voc"):
        (folder / "datasets" / key).mkdir(parents=True)
        (folder / "datasets" / key / "image").write_text(key)
    file = folder / "stage.sh"
    file.write_text(text)
    return file


def test_documented_staging_copies_once_per_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local, queue = tmp_path / "local", Queue(setup_file=str(staging_file(tmp_path)))
    show = f"cat {local}/imagenet/image {local}/voc/image"
    copy = f'echo once >> {tmp_path}/copies; sleep 0.2; exec /bin/cp "$@"'
    fake_programs(tmp_path / "bin", monkeypatch, cp=copy, srun=show)
    monkeypatch.setenv("SLURM_JOB_NAME", "mine:Linear-probes")
    command = ["bash", "-c", script(array(1), queue, tmp_path / "jobs")]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [job.communicate()[0] for job in jobs] == ["imagenetvoc"] * 4
    assert (tmp_path / "copies").read_text() == "once\n"
    assert (local / "voc").is_symlink()


def test_documented_staging_copies_again_after_a_failed_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(setup_file=str(staging_file(tmp_path)))
    monkeypatch.setenv("SLURM_JOB_NAME", "mine:Linear-probes")
    command = ["bash", "-c", script(array(1), queue, tmp_path / "jobs")]
    for copy, status in (('/bin/cp "$@"; exit 1', 1), ('exec /bin/cp "$@"', 0)):
        fake_programs(tmp_path / "bin", monkeypatch, cp=copy, srun="true")
        assert subprocess.run(command, capture_output=True).returncode == status
        assert (tmp_path / "local/imagenet/image").exists() == (status == 0)


def test_documented_staging_leaves_out_the_job_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(setup_file=str(staging_file(tmp_path)))
    monkeypatch.setenv("SLURM_JOB_NAME", "tables")
    fake_programs(tmp_path / "bin", monkeypatch, srun="echo started")
    text = script(array(1), queue, tmp_path / "jobs")
    completed = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert (completed.stdout, completed.returncode) == ("started\n", 0)
    assert not (tmp_path / "local").exists()


@pytest.mark.parametrize("content", ["export A=1", "set -euo pipefail\nexport A=1", "false\nA=1"])
def test_failing_setup_line_ends_the_job(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("setup file.sh").write_text(content)
    queue = Queue(setup_file="setup file.sh", setup=('A="$A, then $UNSET"',))
    path = str(tmp_path / "setup file.sh")
    assert queue.setup_file == path
    # the command fails, and the script continues to queue the job again
    fake_programs(tmp_path, monkeypatch, srun="echo srun $A; exit 75")
    text = script(array(1), queue, tmp_path / "jobs").replace("-m slurm.requeue", "-c 'exit()'")
    completed = subprocess.run(["bash", "-c", f"export A\n{text}"], capture_output=True, text=True)
    if "false" in content:
        output = f"the job ends before its command, since a line of {path} failed\n"
        assert (completed.stdout, completed.stderr, completed.returncode) == ("", output, 1)
    else:
        assert (completed.stdout, completed.stderr, completed.returncode) == (
            "srun 1, then\n",
            "",
            75,
        )
    Path("setup file.sh").unlink()
    with pytest.raises(RequestError, match=r"setup file\.sh: no such file"):
        script(array(1), queue, tmp_path / "jobs")


def test_failing_line_of_the_setup_is_named_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_programs(tmp_path, monkeypatch, conda="exit 1", srun="echo started")
    text = script(array(1), Queue(setup=("conda activate ssl",)), tmp_path / "jobs")
    completed = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    sentence = "the job ends before its command, since this line of --setup failed: "
    output = f"{sentence}conda activate ssl\n"
    assert (completed.stdout, completed.stderr, completed.returncode) == ("", output, 1)


def test_chosen_python_runs_the_command_without_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{PROJECT}:/mine")  # as run_all.py sets it
    show = 'while [ "$1" != wrap ]; do shift; done; echo "$@" in "$PYTHONPATH"'
    fake_programs(tmp_path, monkeypatch, srun=show)
    text = script(array(1), Queue(python="wrap python3"), Path("/jobs"))
    completed = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert completed.stdout == "wrap python3 -u -m submitit.core._submit /jobs in /mine\n"


@pytest.mark.parametrize("ours", [sys.executable, "/not/on/this/node/python"])
def test_job_in_a_container_is_started_again_from_outside_where_possible(
    ours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", ours)
    fake_programs(tmp_path, monkeypatch, srun="exit 75", wrap="echo inside $@; exit 0")
    text = script(array(1), Queue(python="wrap python3"), Path("/jobs"))
    text = text.replace("-m slurm.requeue", "-c 'print(\"outside\")'")
    completed = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    assert completed.stdout.startswith(
        "outside" if ours != "/not/on/this/node/python" else "inside"
    )
    assert completed.returncode == 75


def test_options_of_a_container_are_for_srun() -> None:
    options = ("container-image=ssl.sqsh", "no-container-entrypoint", "reservation=course")
    text = script(array(1), Queue(sbatch=options), Path("/jobs"))
    (line,) = [line for line in text.splitlines() if line.startswith("srun")]
    assert "--container-image=ssl.sqsh --no-container-entrypoint" in line
    assert re.findall("#SBATCH --(.*container.*|reservation.*)", text) == ["reservation=course"]


def test_wckey_is_set_only_if_given() -> None:
    assert "wckey" not in script(array(1), Queue(), Path("/jobs"))
    assert "#SBATCH --wckey=mine\n" in script(array(1), Queue(sbatch=("wckey=mine",)), Path("/x"))


def test_a_time_limit_above_the_partitions_is_refused(tmp_path: Path) -> None:
    limited_cluster = Cluster({}, {"low": 30.0, "long": 2880.0, "": 30.0})
    requested = [array(1), replace(array(1), resources=Resources(hours=0.7), partition="low")]
    with pytest.raises(ClusterError, match=r"42 min.*partition low is 30 min.*--hours 0\.5"):
        submit(requested, Queue(partition="low,long"), tmp_path, limited_cluster)
    assert limited_cluster.max_minutes("") == 30
    assert limited_cluster.max_minutes("other") == float("inf")  # sbatch will report the error


def test_more_jobs_than_the_cluster_takes_are_refused_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(tmp_path, monkeypatch, accepted=9)
    fake_programs(tmp_path, monkeypatch, squeue="printf '1_0\\n1_1\\n2\\n'")
    small_cluster = Cluster({"MaxJobCount": "5"})
    with pytest.raises(ClusterError, match=r"3 jobs were not submitted: .* has 3 .* at most 5"):
        submit([array(2), array(1)], Queue(), tmp_path / "jobs", small_cluster)
    assert not (tmp_path / "accepted").exists()
    submit([array(2)], Queue(), tmp_path / "jobs", small_cluster)


def test_two_submissions_of_one_second_have_folders_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A refused array cancels all jobs of its folder."""
    for _ in range(2):
        assert main(["--dry-run", "--", "true"]) == 0
    folders = re.findall("--comment=(.*)", capsys.readouterr().out)
    assert len(set(folders)) == 2


def test_a_wrong_request_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no sbatch here
    assert [main(args) for args in ([], ["--", "true"])] == [2, 2]
