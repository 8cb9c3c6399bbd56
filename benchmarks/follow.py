"""Follow a training run: evaluate its checkpoints while any trainer writes them.

A file whose size and time have not changed for a while is copied into the folder of runs, read
there, evaluated, and the copy is removed. A file is identified by the hash of its content, so that
an overwritten last.ckpt is another checkpoint, and a second name of the same bytes is not.

Exit status: 0 the run ended, 1 a task failed or the cluster did not respond, 2 the request is wrong
or refused, or the folder never existed, 3 a result is below --stop-below, 75 stopped by a signal;
the same command continues.
"""

import hashlib
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.execution.states import CellState, all_states
from benchmarks.planning.cells import require_data_folder, task_keys
from benchmarks.planning.checkpoints import followed_checkpoint
from benchmarks.planning.options import CURVE_TASKS, FollowOptions, RunAll
from benchmarks.results.records import CURVE_SEPARATOR, read_results
from benchmarks.words import TRANSFER
from pretrain.running import stop
from pretrain.running.atomic_files import WriteError, explain_write_errors
from pretrain.running.console import print_line
from pretrain.running.lock import BusyError, lock_folder
from slurm.cluster import ClusterError, NoResponseError, cluster
from slurm.state import job_states
from transfer.cells.cell import open_checkpoint
from transfer.cells.request import from_json
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError
from transfer.datasets.folders import check_row_name
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import RUN_SUBFOLDERS
from transfer.encoders.files import read_file
from transfer.encoders.options import Checkpoint, Origin
from transfer.frozen.rankme import RANKME
from transfer.tasks import task_of

PATTERNS = ("*.ckpt", "*.pth", "*.pth.tar", "snapshots/*.pt")
EXIT_BELOW = 3
"""Exit status if a result is below --stop-below."""
POLL_S, JOBS_POLL_S = 5.0, 60.0
"""Seconds between checks of the folder, and between queries of Slurm."""
LAST_TRIES_S = 600.0
"""Seconds after the end of the training in which a cluster that does not respond is tried again."""
ENDINGS = re.compile(r"(\.(pth|pt|ckpt|tar))+$")
KEYS = {
    "epoch": ("epoch", "current_epoch", "meta.epoch"),
    "step": ("global_step", "step", "iteration", "iter", "meta.iter"),
}
"""Entries of files that state the epoch or the step of the training."""
IN_NAME = {"epoch": r"(?:epoch|ep)[=_-]?(\d+)", "step": r"(?:step|iteration|iter)[=_-]?(\d+)"}
Evaluate = Callable[[RunAll, Sequence[Checkpoint]], int]


class Stamp(NamedTuple):
    """Properties of a file that change when it is written."""

    modified_ns: int
    size: int


@dataclass
class Watch:
    """Checkpoints in the folder of a training run, and which of them are complete."""

    folder: Path
    patterns: Sequence[str]
    settle_s: float
    copies: Path
    changed_s: float
    """Time at which a file was last found new or changed."""
    waiting: dict[Path, tuple[Stamp, float]] = field(default_factory=dict)
    """Files to evaluate, with the time from which they have not changed."""
    taken: dict[Path, Stamp] = field(default_factory=dict)
    """Copied and unusable files, with their stamps at that time."""

    def ready(self, now_s: float) -> list[Path]:
        """Return the files that have not changed for settle_s, oldest first."""
        try:
            stamps = dict(self._stamps())
        except OSError:  # a subfolder vanished while it was listed
            return []
        for path in [path for path in self.waiting if path not in stamps]:
            del self.waiting[path]
            print_line("follow", f"{path}: vanished before it was copied")
        for path, stamp in stamps.items():
            if self.taken.get(path) == stamp:
                self.waiting.pop(path, None)  # written again as it was
            elif path not in self.waiting or self.waiting[path][0] != stamp:
                self.waiting[path] = stamp, now_s
                self.changed_s = now_s
        settled = [
            p for p, (_, since_s) in self.waiting.items() if now_s - since_s >= self.settle_s
        ]
        return sorted(settled, key=lambda path: (self.waiting[path][0].modified_ns, path))

    def _stamps(self) -> Iterator[tuple[Path, Stamp]]:
        patterns = [*self.patterns]
        patterns += ["*.pt"] * (self.folder.name == "snapshots" and "snapshots/*.pt" in patterns)
        paths = {path for pattern in patterns for path in self.folder.rglob(pattern)}
        for path in sorted(paths):
            if self.copies in path.absolute().parents:
                continue
            with suppress(OSError):  # vanished, or a link to nothing
                if path.is_file():
                    yield path, stamp_of(path)

    def copy(self, path: Path) -> tuple[Path, str] | None:
        """Return a copy of a waiting file and its SHA-256; None if it changes or vanishes.

        WriteError if the copy cannot be written.
        """
        stamp, _ = self.waiting.pop(path)
        self.taken[path] = stamp
        self.copies.mkdir(parents=True, exist_ok=True)
        temporary = self.copies / ".copying"
        digest = hashlib.sha256()
        try:
            with path.open("rb") as source, temporary.open("wb") as target:
                while chunk := source.read(2**22):
                    stop.exit_if_requested()
                    digest.update(chunk)
                    with explain_write_errors(temporary, "--runs"):
                        target.write(chunk)
            is_same = stamp_of(path) == stamp
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, WriteError):
                raise
            print_line("follow", f"{path}: left out: {error.strerror or error}")
            return None
        if not is_same:  # it waits from the beginning
            temporary.unlink(missing_ok=True)
            del self.taken[path]
            return None
        copy = self.copies / digest.hexdigest()[:16] / path.name
        copy.parent.mkdir(exist_ok=True)
        temporary.replace(copy)
        return copy, digest.hexdigest()


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file."""
    status = path.stat()
    return Stamp(status.st_mtime_ns, status.st_size)


def origin_of(path: Path, modified_ns: int, values: Mapping[str, str | int | float]) -> Origin:
    """Return the origin of a file, with its stated epoch and step."""
    stated = {}
    for name, keys in KEYS.items():
        in_file = [values[key] for key in keys if type(values.get(key)) in (int, float)]
        in_name = re.findall(IN_NAME[name], path.name, re.I)
        stated[name] = next((f"{float(value):.10g}" for value in [*in_file, *in_name]), "")
    # nanoseconds order files of one second
    modified = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(modified_ns // 10**9))
    modified += f".{modified_ns % 10**9:09d}Z"
    return Origin(file=str(path.absolute()), modified=modified, **stated)


def curve_name(folder: Path) -> str:
    """Return a curve's default name, the name of the run's folder."""
    resolved = folder.resolve()
    names = [parent.name for parent in (resolved, *resolved.parents)]
    return next((name for name in names if name not in RUN_SUBFOLDERS), "")


def thresholds(options: FollowOptions, keys: Sequence[str]) -> dict[str, float]:
    """Return the values of --stop-below by task; ValueError for another form or task."""
    values = {}
    for text in options.stop_below:
        key, _, value = text.partition("=")
        try:
            values[key] = float(value)
        except ValueError as error:
            raise ValueError(
                f"--stop-below {text}: expected TASK=VALUE, such as {keys[0]}=15"
            ) from error
        if key not in keys:
            raise ValueError(f"--stop-below {text}: not one of the tasks {', '.join(keys)}")
    return values


def pause(seconds: float) -> None:
    """Sleep until the time is over or a signal arrives."""
    end_s = time.monotonic() + seconds
    while not stop.is_requested() and (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(0.2, left_s))


def follow(
    request: RunAll,
    evaluate: Evaluate,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = pause,
) -> int:
    """Evaluate the checkpoints of a run until it ends; return the exit status.

    evaluate: evaluates checkpoints on the tasks of a request, or submits them, and returns the exit
    status. now, sleep: the clock, in s.
    """
    options, settings = request.following, request.settings
    if (folder := options.follow) is None:
        raise ValueError("--follow expects the folder of a training run")
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--follow {folder}: not a folder; expected that of a training run")
    keys = task_keys(request.tasks or CURVE_TASKS, "")
    datasets = list(dict.fromkeys(name for key in keys for name in task_of(key).datasets()))
    require_data_folder(settings.data)
    if missing := [key for key in datasets if not DATASETS[key].exists_in(settings.data)]:
        raise DataError(
            f"--follow: no {', '.join(missing)} in {settings.data}. To get data, run: "
            f"{shlex.join([*TRANSFER, 'get-data', *missing, '--data', str(settings.data)])}"
        )
    if absolute := [pattern for pattern in options.pattern if pattern.startswith("/")]:
        raise ValueError(f"--pattern {absolute[0]}: expected a pattern inside of the folder")
    if len(request.name) > 1:
        raise ValueError("--follow takes one --name, that of the curve")
    if request.cluster.slurm:
        cluster()  # ClusterError now, not at the first checkpoint
    curve = request.name[0] if request.name else curve_name(folder)
    check_row_name(curve, curve_name(folder))
    copies = (settings.runs / "follow" / curve).absolute()
    follower = _Follower(
        request, evaluate, curve, copies, followed_checkpoint(request), thresholds(options, keys)
    )
    watch = Watch(folder, options.pattern or PATTERNS, options.settle_s, copies, now())
    if not folder.exists():
        print_line("follow", f"{folder}: does not exist yet; waiting")
    try:
        with lock_folder(copies):
            return follower.run(watch, now, sleep)
    except BusyError as error:
        raise ValueError(f"{error}. To follow another run, pass another --name") from error


@dataclass
class _Follower:
    """Evaluation of copies, and its results."""

    request: RunAll
    evaluate: Evaluate
    curve: str
    copies: Path
    template: Checkpoint
    """Options of all checkpoints of the run."""
    thresholds: Mapping[str, float]
    seen: dict[str, str] = field(default_factory=dict)
    """Names of the checkpoints that were evaluated or refused, by SHA-256."""
    submitted: dict[str, Path] = field(default_factory=dict)
    """Copies that jobs of a cluster read or will read, by the name of the checkpoint."""
    unanswered: dict[str, tuple[Checkpoint, str]] = field(default_factory=dict)
    """Checkpoints to submit again, since the cluster did not respond, with their SHA-256."""
    asked_s: float = -JOBS_POLL_S
    """Time of the last query of Slurm."""
    job_has_ended: bool = False
    """Whether the job of --until-job has ended, or Slurm forgot it."""
    failed: bool = False
    ended: int | None = None
    """Exit status if the run ends here."""

    def run(self, watch: Watch, now: Callable[[], float], sleep: Callable[[float], None]) -> int:
        """Evaluate checkpoints until the run ends; return the exit status.

        ValueError if the folder does not exist at the end.
        """
        options, unended_s = self.request.following, now()
        self.resume()
        while True:
            stop.exit_if_requested()
            if now() - self.asked_s >= JOBS_POLL_S:
                self.asked_s = now()
                self.ask_slurm(options.until_job)
            idle_h = (now() - watch.changed_s) / 3600
            end_reason = ""
            if options.until and options.until.exists():
                end_reason = f"{options.until} exists (--until)"
            elif self.job_has_ended:
                end_reason = f"job {options.until_job} has ended (--until-job)"
            elif options.until_idle and idle_h >= options.until_idle:
                end_reason = (
                    f"no new or changed checkpoint for {options.until_idle:g} h (--until-idle)"
                )
            if not end_reason:
                unended_s = now()
            ready = watch.ready(now())  # what was written before the end is evaluated
            if ready and self.ended is None:
                path = ready[-1 if options.newest else 0]
                modified_ns = watch.waiting[path][0].modified_ns
                if copied := watch.copy(path):
                    self.take(path, modified_ns, *copied)
            if self.ended is not None:
                return self.ended
            for name in [*self.unanswered] if now() - unended_s >= LAST_TRIES_S else ():
                print_line("follow", f"{name}: not submitted; the same command tries again")
                del self.submitted[name], self.unanswered[name]
                self.failed = True
            if end_reason and not watch.waiting and not self.submitted:
                if not watch.folder.exists():
                    raise ValueError(
                        f"--follow {watch.folder}: no such folder until the end ({end_reason}). "
                        "Expected the folder of a training run, which may also appear later"
                    )
                found = "" if self.seen else f"; no checkpoint in {watch.folder}"
                print_line("follow", f"ended: {end_reason}{found}")
                return int(self.failed)
            if not ready:
                sleep(min(POLL_S, max(options.settle_s / 4, 0.1)))

    def ask_slurm(self, job: str) -> None:
        """Check whether the followed job, and jobs that read copies, have ended.

        Checkpoints are submitted again if the cluster did not respond.
        """
        if job and not self.job_has_ended:
            try:
                state = job_states([job]).get(job)
            except ClusterError as error:
                print_line("follow", f"--until-job {job}: {error}; asking again later")
            else:
                self.job_has_ended = state is None or state.stage == "ended"
        states = self._states() if self.submitted else []
        for name, copy in [*self.submitted.items()]:
            if name in self.unanswered:
                self._evaluate(*self.unanswered.pop(name))
                continue
            names = {state.name for state in states if state.identity[0] == name}
            if not {"queued", "running"} & names:
                del self.submitted[name]
                failed = bool({"failed", "cancelled", "stopped"} & names)
                self._end(name, copy, failed=failed)

    def resume(self) -> None:
        """Evaluate the copies that an earlier process has left.

        Raises ValueError if they belong to another run.
        """
        for state in self._states():
            checkpoint = from_json(Checkpoint, state.stored.content["request"]["checkpoint"])
            source = checkpoint.origin.file
            folder = self.request.following.follow
            if source and folder is not None and folder.absolute() not in Path(source).parents:
                raise ValueError(
                    f"the curve {self.curve} in {self.request.settings.results} has checkpoints of "
                    f"another folder: {source}. Pass another --name"
                )
            name, sha256 = state.identity[0], state.stored.content["file_sha256"]
            if not checkpoint.ckpt.is_file() or self.copies not in checkpoint.ckpt.parents:
                continue
            if state.stored.is_submitted and state.name in ("queued", "running"):
                self.submitted[name], self.seen[sha256] = checkpoint.ckpt, name
            elif state.name != "done" and sha256 not in self.seen:
                self._evaluate(checkpoint, sha256)
        kept = {copy.parent for copy in self.submitted.values()}
        for copy in [*self.copies.iterdir()]:
            if copy.is_dir() and copy not in kept:
                shutil.rmtree(copy, ignore_errors=True)

    def take(self, path: Path, modified_ns: int, copy: Path, sha256: str) -> None:
        """Evaluate a copy, unless its content was evaluated before or is not a checkpoint."""
        if sha256 in self.seen:
            if self.seen[sha256] not in self.submitted:
                shutil.rmtree(copy.parent, ignore_errors=True)
            if not self.seen[sha256].endswith(ENDINGS.sub("", path.name)):
                print_line("follow", f"{path}: same content as {self.seen[sha256]}")
            return
        try:
            values = read_file(copy).values
            origin = origin_of(path, modified_ns, values)
            name = self._name(path, sha256)
            checkpoint = replace(self.template, ckpt=copy, name=name, origin=origin)
            open_checkpoint(checkpoint)
        except (BackboneError, OSError) as error:
            print_line("follow", f"{path}: left out: {error}")
            self.seen[sha256] = str(path)
            shutil.rmtree(copy.parent, ignore_errors=True)
            return
        print_line("follow", f"{name}: {path}")
        self._evaluate(checkpoint, sha256)

    def _name(self, path: Path, sha256: str) -> str:
        """Return the name of a checkpoint.

        It contains the hash if another checkpoint has the same file name.
        """
        taken = {name: other for other, name in self.seen.items()}
        taken |= {
            state.identity[0]: state.stored.content["file_sha256"] for state in self._states()
        }
        if known := next((name for name, other in taken.items() if other == sha256), ""):
            return known
        name = f"{self.curve}{CURVE_SEPARATOR}{ENDINGS.sub('', path.name)}"
        return f"{name}-{sha256[:8]}" if name in taken else name

    def _states(self) -> list[CellState]:
        """Return the states of the curve's evaluations."""
        start = f"{self.curve}{CURVE_SEPARATOR}"
        states, _ = all_states(self.request.settings.results)
        return [state for state in states if state.identity[0].startswith(start)]

    def _evaluate(self, checkpoint: Checkpoint, sha256: str) -> None:
        name = str(checkpoint.name)
        self.seen[sha256] = name
        try:
            status = self.evaluate(self.request, [checkpoint])
        except NoResponseError as error:
            print_line("follow", f"{name}: {error}; trying again in {JOBS_POLL_S:g} s")
            self.submitted[name], self.unanswered[name] = checkpoint.ckpt, (checkpoint, sha256)
            return
        if status == stop.EXIT_RESUMABLE:  # a disk could not be read; the copy stays
            self.ended = status
        elif self.request.cluster.slurm:
            self.submitted[name] = checkpoint.ckpt
        else:
            self._end(name, checkpoint.ckpt, failed=status != 0)

    def _end(self, name: str, copy: Path, *, failed: bool) -> None:
        """Remove a copy whose evaluations have ended; end the run if a result is too low."""
        shutil.rmtree(copy.parent, ignore_errors=True)
        self.failed |= failed
        settings = self.request.settings
        for run in read_results(settings.results).snapshots:
            if run.failure or run.backbone.name != name or run.schedule != settings.schedule:
                continue
            value, limit = run.metrics[run.primary_metric], self.thresholds.get(run.key, 0.0)
            text = f", RankMe {run.metrics[RANKME]:.1f}" if RANKME in run.metrics else ""
            print_line("follow", f"{name}: {run.key} {run.primary_metric} {value:.2f}{text}")
            if value < limit:
                print_line("follow", f"{name}: {run.key} is below {limit:g}; ending")
                self.ended = EXIT_BELOW
