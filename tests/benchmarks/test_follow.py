"""A training run is followed: which files are evaluated, in what order, and when it ends."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import benchmarks.follow
from benchmarks.follow import (
    EXIT_BELOW,
    LAST_TRIES_S,
    PATTERNS,
    Watch,
    curve_name,
    follow,
    origin_of,
)
from benchmarks.planning.options import FollowOptions, RunAll, SlurmOptions
from benchmarks.results.overview import curve_positions
from benchmarks.results.records import Backbone
from benchmarks.run_all import main
from pretrain.running import stop
from pretrain.running.stop import EXIT_RESUMABLE, Stopped
from slurm.cluster import ClusterError, NoResponseError
from transfer.cells.request import Settings
from transfer.datasets.expected import DataError
from transfer.encoders.architectures import BackboneError
from transfer.encoders.files import Contents
from transfer.encoders.options import Checkpoint

ROOT = Path(__file__).parents[2]
Actions = dict[float, Callable[[], object]]


class Trainer:
    """A clock that runs the actions of a trainer at their times, and what was evaluated."""

    def __init__(self, folder: Path, actions: Actions) -> None:
        self.folder, self.actions, self.now_s = folder, actions, 0.0
        self.names: list[str] = []
        self.contents: list[bytes] = []
        self.copies: list[Path] = []
        self.status = 0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < 1e6, "the run does not end"
        for due_s in [due_s for due_s in sorted(self.actions) if due_s <= self.now_s]:
            self.actions.pop(due_s)()

    def write(self, name: str, content: bytes, time_s: int = 0) -> Callable[[], None]:
        def action() -> None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            os.utime(path, (time_s, time_s)) if time_s else None

        return action

    def evaluate(self, request: RunAll, checkpoints: Sequence[Checkpoint]) -> int:
        (checkpoint,) = checkpoints
        self.names.append(str(checkpoint.name))
        self.contents.append(checkpoint.ckpt.read_bytes())
        self.copies.append(checkpoint.ckpt)
        return self.status


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A run whose files are not read as checkpoints, unless they begin with "bad"."""

    def read(path: Path) -> Contents:
        if path.read_bytes().startswith(b"bad"):
            raise BackboneError("damaged")
        return Contents({}, {}, {})

    monkeypatch.setattr(benchmarks.follow, "read_file", read)
    monkeypatch.setattr(benchmarks.follow, "open_checkpoint", lambda checkpoint: None)
    folder = tmp_path / "mine" / "checkpoints"
    folder.mkdir(parents=True)
    return Trainer(folder, {})


def run(trainer: Trainer, settings: Settings, **options: Any) -> int:
    options = {"until_idle": 1.0} | options
    following = FollowOptions(follow=trainer.folder, **options)
    request = RunAll(settings=settings, following=following)
    return follow(request, trainer.evaluate, trainer.now, trainer.sleep)


def watch(folder: Path, *patterns: str) -> Watch:
    return Watch(folder, patterns or PATTERNS, 20.0, folder / "runs", 0.0)


def test_growing_file_is_not_ready(tmp_path: Path) -> None:
    file, watched = tmp_path / "a.pth", watch(tmp_path)
    for now_s in (0, 15, 30):
        with file.open("ab") as target:
            target.write(b"piece")
        assert watched.ready(now_s) == []
    assert watched.ready(49) == []
    assert watched.ready(50) == [file]


def test_file_that_changes_while_it_is_copied_waits_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, watched = tmp_path / "a.pth", watch(tmp_path)
    file.write_bytes(b"half")
    watched.ready(0)
    assert watched.ready(20) == [file]
    monkeypatch.setattr(stop, "exit_if_requested", lambda: file.write_bytes(b"another half"))
    assert watched.copy(file) is None
    assert watched.ready(21) == []
    assert watched.ready(41) == [file]


def test_patterns_select_files_of_all_subfolders(tmp_path: Path) -> None:
    names = ("a.pt", "b.pth", "c.ckpt", "d.pth.tar", "x/e.ckpt", "x/snapshots/f.pt", "g.bin")
    for name in (*names, "runs/copy.pth"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.ckpt").mkdir()

    def ready(folder: Path, *patterns: str) -> list[str]:
        watched = watch(folder, *patterns)
        watched.ready(0)
        return sorted(str(path.relative_to(folder)) for path in watched.ready(20))

    assert ready(tmp_path) == [*names[1:6]]
    assert ready(tmp_path, "*.bin") == ["g.bin"]
    assert ready(tmp_path / "x" / "snapshots") == ["f.pt"]


def test_overwritten_file_is_another_checkpoint(trainer: Trainer, settings: Settings) -> None:
    trainer.actions = {
        1: trainer.write("last.ckpt", b"first"),
        100: trainer.write("last.ckpt", b"second"),
        200: trainer.write("best.ckpt", b"second"),
    }
    assert run(trainer, settings) == 0
    assert trainer.contents == [b"first", b"second"]
    assert trainer.names == ["mine@last", "mine@last-16367aac"]  # of the SHA-256 of "second"


def test_copies_are_removed(trainer: Trainer, settings: Settings) -> None:
    trainer.write("last.ckpt", b"first")()
    trainer.write("bad.ckpt", b"bad")()
    trainer.status = 1
    assert run(trainer, settings) == 1
    assert trainer.copies[0].is_relative_to(settings.runs / "follow" / "mine")
    assert [path.name for path in (settings.runs / "follow" / "mine").iterdir()] == ["lock"]


def test_vanished_and_unreadable_files_are_noted(
    trainer: Trainer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bad.pth", "gone.pth", "good.pth"):
        trainer.write(name, name.encode())()
    trainer.actions = {3: (trainer.folder / "gone.pth").unlink}
    assert run(trainer, settings) == 0
    assert trainer.names == ["mine@good"]
    lines = capsys.readouterr().err
    assert "gone.pth: vanished" in lines
    assert "bad.pth: left out: damaged" in lines


@pytest.mark.parametrize("newest", [False, True])
def test_files_are_evaluated_in_order_of_time(
    trainer: Trainer, settings: Settings, *, newest: bool
) -> None:
    for time_s, name in ((20, "b"), (10, "c"), (30, "a")):
        trainer.write(f"{name}.pth", name.encode(), time_s)()
    run(trainer, settings, newest=newest)
    names = ["mine@c", "mine@b", "mine@a"]
    assert trainer.names == (names[::-1] if newest else names)


def test_existing_file_ends_the_run_after_the_last_checkpoint(
    trainer: Trainer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    done = trainer.folder / "DONE"
    trainer.actions = {100: trainer.write("a.pth", b"a"), 101: done.touch}
    assert run(trainer, settings, until=done, until_idle=0.0) == 0
    assert trainer.names == ["mine@a"]
    assert trainer.now_s < 150
    assert f"ended: {done} exists" in capsys.readouterr().err


def test_idle_run_ends(
    trainer: Trainer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.actions = {3000.0: trainer.write("a.pth", b"a")}
    assert run(trainer, settings, until_idle=1.0) == 0
    assert trainer.names == ["mine@a"]
    assert 6600 <= trainer.now_s <= 6620
    assert capsys.readouterr().err.rstrip().endswith("checkpoint for 1 h (--until-idle)")


def test_folder_may_appear_later(
    trainer: Trainer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer.folder.rmdir()
    trainer.actions = {3000.0: trainer.write("a.pth", b"a")}
    assert run(trainer, settings) == 0
    assert trainer.names == ["mine@a"]
    assert capsys.readouterr().err.count("does not exist yet") == 1


def test_folder_that_never_appears_is_an_error(trainer: Trainer, settings: Settings) -> None:
    trainer.folder.rmdir()
    with pytest.raises(ValueError, match=r"no such folder.*1 h \(--until-idle\)"):
        run(trainer, settings)


def test_folder_without_checkpoints_is_said(
    trainer: Trainer, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(trainer, settings) == 0
    assert f"no checkpoint in {trainer.folder}" in capsys.readouterr().err


def test_run_ends_with_its_job(
    trainer: Trainer,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stages = iter(["queued", "running", "ended"])
    monkeypatch.setattr(
        benchmarks.follow,
        "job_states",
        lambda jobs: {jobs[0]: SimpleNamespace(stage=next(stages))},
    )
    assert run(trainer, settings, until_job="7", until_idle=0.0) == 0
    assert 120 <= trainer.now_s <= 130
    assert "ended: job 7 has ended" in capsys.readouterr().err


def test_low_result_ends_with_its_own_status(
    trainer: Trainer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"mine@a": 50.0, "mine@b": 9.0, "mine@c": 50.0}
    snapshots = [
        SimpleNamespace(
            backbone=SimpleNamespace(name=name),
            key="cifar10_knn",
            failure="",
            schedule=settings.schedule,
            primary_metric="top1",
            metrics={"top1": value},
            details={"rankme": {"value": 7.0}},
        )
        for name, value in values.items()
    ]
    found = SimpleNamespace(snapshots=snapshots)
    monkeypatch.setattr(benchmarks.follow, "read_results", lambda results: found)
    for time_s, name in enumerate("abc", 1):
        trainer.write(f"{name}.pth", name.encode(), time_s)()
    assert run(trainer, settings, stop_below=("cifar10_knn=10",)) == EXIT_BELOW == 3
    assert trainer.names == ["mine@a", "mine@b"]


def test_signal_ends_with_75(trainer: Trainer, settings: Settings) -> None:
    trainer.actions = {10: lambda: stop._received_signals.append(15)}
    with pytest.raises(Stopped) as caught:
        run(trainer, settings)
    assert caught.value.code == EXIT_RESUMABLE


@pytest.fixture
def job(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The state of the evaluation of a checkpoint mine@a on a cluster."""
    state = SimpleNamespace(identity=("mine@a", "cifar10_knn", 0), name="queued")
    state.stored = SimpleNamespace(content={"file_sha256": ""})
    follower = benchmarks.follow._Follower
    monkeypatch.setattr(follower, "resume", lambda self: None)
    monkeypatch.setattr(follower, "_states", lambda self: [state] if trainer.names else [])
    monkeypatch.setattr(benchmarks.follow, "cluster", lambda: None)
    return state


def run_on_cluster(trainer: Trainer, settings: Settings, **options: Any) -> int:
    options = {"until_idle": 0.5} | options
    following = FollowOptions(follow=trainer.folder, **options)
    request = RunAll(settings=settings, following=following, cluster=SlurmOptions(slurm=True))
    return follow(request, trainer.evaluate, trainer.now, trainer.sleep)


def test_copies_on_a_cluster_stay_until_their_jobs_end(
    trainer: Trainer, settings: Settings, job: SimpleNamespace
) -> None:
    existed = []

    def end() -> None:
        existed.append(trainer.copies[0].exists())
        job.name = "done"

    trainer.actions = {30: trainer.write("a.pth", b"a"), 5000: end}
    assert run_on_cluster(trainer, settings) == 0
    assert existed == [True]
    assert not trainer.copies[0].exists()
    assert trainer.now_s >= 5000


def test_checkpoint_is_submitted_again_if_the_cluster_did_not_respond(
    trainer: Trainer,
    settings: Settings,
    job: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluate, answers = trainer.evaluate, iter([NoResponseError("no response"), None])

    def submit(request: RunAll, checkpoints: Sequence[Checkpoint]) -> int:
        if (error := next(answers)) is not None:
            raise error
        return evaluate(request, checkpoints)

    monkeypatch.setattr(trainer, "evaluate", submit)

    def end() -> None:
        job.name = "done"

    trainer.actions = {
        30: trainer.write("a.pth", b"a"),
        40: trainer.write("b.pth", b"a"),  # same content: the copy must stay
        5000: end,
    }
    assert run_on_cluster(trainer, settings) == 0
    assert (trainer.names, trainer.contents) == (["mine@a"], [b"a"])
    assert "mine@a: no response; trying again in 60 s" in capsys.readouterr().err


def test_refusal_of_the_cluster_ends_the_run(
    trainer: Trainer, settings: Settings, job: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Mock(side_effect=ClusterError("invalid partition"))
    monkeypatch.setattr(trainer, "evaluate", refusal)
    trainer.actions = {30: trainer.write("a.pth", b"a")}
    with pytest.raises(ClusterError, match="invalid partition"):
        run_on_cluster(trainer, settings)
    refusal.assert_called_once()


@pytest.mark.parametrize("until", [True, False])
def test_run_ends_with_1_if_the_cluster_does_not_respond_after_its_end(
    trainer: Trainer,
    settings: Settings,
    job: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    until: bool,
) -> None:
    tries = Mock(side_effect=NoResponseError("no response"))
    monkeypatch.setattr(trainer, "evaluate", tries)
    done = trainer.folder / "DONE"
    trainer.actions = {30: trainer.write("a.pth", b"a"), 4000: done.touch}
    options = {"until": done, "until_idle": 0.0} if until else {"until_idle": 1.0}
    assert run_on_cluster(trainer, settings, **options) == 1
    end_s = 4000 if until else 30 + 3600
    assert trainer.now_s == pytest.approx(end_s + LAST_TRIES_S, abs=60)
    assert tries.call_count > 50


def test_unsupported_task_on_a_cluster_is_not_a_failure(
    trainer: Trainer, settings: Settings, job: SimpleNamespace
) -> None:
    job.name = "unsupported"
    trainer.actions = {30: trainer.write("a.pth", b"a")}
    assert run_on_cluster(trainer, settings) == 0


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"stop_below": ("cifar10_knn",)}, "TASK=VALUE"),
        ({"stop_below": ("voc07_svm=3",)}, "voc07_svm"),
        ({"pattern": ("/tmp/*.pth",)}, "/tmp/"),
    ],
)
def test_wrong_options_are_refused_at_the_start(
    trainer: Trainer, settings: Settings, options: dict[str, Any], fact: str
) -> None:
    with pytest.raises(ValueError, match=fact):
        run(trainer, settings, **options)


def test_missing_data_is_refused_at_the_start(
    trainer: Trainer, settings: Settings, only: Callable[..., Path]
) -> None:
    with pytest.raises(DataError, match="cifar10"):
        run(trainer, replace(settings, data=only("voc07")))


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["--ckpt", "a.pth", "--newest"], "--follow"),
        (["--follow", ".", "--ckpt", "a.pth"], "--ckpt"),
        (["--follow", ".", "--plan"], "--plan"),
        (["--follow", ".", "--settle-s", "-1"], "--settle-s"),
        (["--follow", str(Path(__file__))], "not a folder"),
    ],
)
def test_command_line_is_checked(
    words: list[str], fact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert fact in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "values", "position"),
    [
        ("last.ckpt", {"epoch": 3, "global_step": 1200, "epoch_x": 9}, ("3", "1200")),
        ("epoch_7.pth", {"meta.epoch": 7, "meta.iter": 70}, ("7", "70")),
        ("epoch=2-step=50.ckpt", {}, ("2", "50")),
        ("checkpoint_0199.pth.tar", {"epoch": "late"}, ("", "")),
    ],
)
def test_epoch_and_step_are_stated_by_file_or_name(
    name: str, values: dict[str, Any], position: tuple[str, str]
) -> None:
    origin = origin_of(Path(name), 1_700_000_000_000_000_001, values)
    assert (origin.epoch, origin.step) == position
    assert origin.modified == "2023-11-14T22:13:20.000000001Z"


def test_curve_is_named_after_the_run(tmp_path: Path) -> None:
    assert curve_name(tmp_path / "mine" / "checkpoints") == "mine"


def test_unit_of_a_curve_tells_its_checkpoints_apart() -> None:
    def backbones(*epochs_and_steps: tuple[str, str]) -> list[Backbone]:
        return [
            Backbone(str(i), sha256=str(i), epochs=epoch, step=step, modified=f"2026-01-0{9 - i}")
            for i, (epoch, step) in enumerate(epochs_and_steps)
        ]

    first, second = {"0": 1.0, "1": 2.0}, {"0": 10.0, "1": 20.0}
    assert curve_positions(backbones(("1", "10"), ("2", "20"))) == ("epoch", first)
    assert curve_positions(backbones(("1", "10"), ("1", "20"))) == ("step", second)
    assert curve_positions(backbones(("", ""), ("1", ""))) == ("checkpoint", {"0": 2.0, "1": 1.0})


TRAINER = """
    import io, sys, time
    from pathlib import Path
    import torch
    from torchvision.models import resnet18

    folder, network = Path(sys.argv[1]), resnet18()
    for epoch in range(2):
        network.conv1.weight.data += 0.1
        buffer = io.BytesIO()
        torch.save({"epoch": epoch + 1, "state_dict": network.state_dict()}, buffer)
        content = buffer.getvalue()
        for name in (f"epoch{epoch}.pth", "last.pth"):
            with (folder / name).open("wb") as file:
                for start in range(0, len(content), 10_000_000):
                    file.write(content[start : start + 10_000_000])
                    file.flush()
                    time.sleep(0.2)
    (folder / "broken.pth").write_bytes(content[:1_000_000])
    (folder / "DONE").touch()
"""


@pytest.mark.slow
def test_run_of_a_stand_in_trainer_becomes_a_curve(small_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    options = ["--follow", "mine", "--settle-s", "1", "--until", "mine/DONE"]
    options += ["--data", str(small_data), "--schedule", "smoke"]
    command = [sys.executable, str(ROOT / "benchmarks/run_all.py"), *options]
    trainer = subprocess.Popen([sys.executable, "-c", textwrap.dedent(TRAINER), str(folder)])
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        assert any("mine@epoch0" in line for line in first.stderr)
        first.terminate()
        first.stderr.read()
    assert first.returncode == EXIT_RESUMABLE
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert trainer.wait() == done.returncode == 0, done.stderr
    assert "broken.pth: left out" in done.stderr
    assert "same content as mine@epoch1" in done.stderr
    (file,) = (tmp_path / "results" / "figures").glob("mine.cifar10_knn.*.csv")
    header, *rows = file.read_text().splitlines()
    assert header == "epoch,top1,rankme"
    assert [row.split(",")[0] for row in rows] == ["1", "2"]
    assert [path.name for path in (tmp_path / "runs/follow/mine").iterdir()] == ["lock"]
    command += ["--stop-below", "cifar10_knn=100"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == EXIT_BELOW
    command += ["--follow", "another", "--name", "mine"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "another folder" in refused.stderr
