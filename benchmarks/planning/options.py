"""The options of run_all."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from pretrain.running.command_line import changed_fields, option_of
from pretrain.running.ranges import Count, Hours, MemoryGB, NumGPUs, NumWorkers, Range
from slurm.resources import Queue
from transfer.cells.request import Settings
from transfer.encoders.options import Mean, Pool, Std

CURVE_TASKS = "cifar10_knn"
"""Tasks of snapshots and followed runs unless --tasks is given."""


NOT_WITH_SNAPSHOTS = (
    *("ckpt", "declared", "branch", "encoder", "skip", "heads", "random", "suite", "seeds"),
    *("slurm", "workers"),
)
NOT_WITH_FOLLOW = (
    *("ckpt", "snapshots", "skip", "heads", "random", "suite", "seeds", "plan", "plan_full"),
)


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Options for evaluations that run as jobs of a SLURM cluster."""

    slurm: bool = False
    """Submit the unfinished evaluations as job arrays, and exit. With --plan, only print the
    scripts for sbatch."""
    status: bool = False
    """Print the states of all evaluations that were submitted or started."""
    watch: bool = False
    """Print the number of evaluations in each state whenever it changes, until all have ended, and
    update runs/status.html."""
    retry_failed: bool = False
    """Submit failed and cancelled evaluations again. Each resumes from its last saved state."""
    cancel: bool = False
    """Cancel all submitted evaluations that are not finished."""
    parallel: Count = 0
    """Jobs of one array that run at the same time; there is one array for each job size. 0: as many
    as the cluster allows."""
    max_gpus: Count = 0
    """GPUs that one array may use at the same time, instead of --parallel for jobs with several
    GPUs. The plan shows the sum over all arrays. 0: as many as the cluster allows."""
    hours: Hours = 0.0
    """Time limit of each job in h. A longer evaluation resumes in a new job. 0: estimated from the
    protocol, at most 24."""
    cell_gpus: NumGPUs = 1
    """GPUs per evaluation of a frozen network; tasks that train the whole network use --gpus. 0:
    the cluster has no GPUs."""
    cpus: Annotated[int, Range(0, 4096)] = 0
    """CPU cores per job. 0: 8 per GPU."""
    memory_gb: MemoryGB = 0.0
    """Memory per job in GB. 0: the cluster's default."""
    tables_partition: str = ""
    """Partition of the job that writes the tables, which needs no GPU. Default: --partition."""
    log_folder: str = ""
    """Folder for logs and job files, on a file system that all nodes share. Default: the folder
    slurm in --runs."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Options of the queue."""

    def __post_init__(self) -> None:
        if self.log_folder:  # a later --retry-failed may run in another folder
            path = Path(self.log_folder).expanduser().absolute()
            object.__setattr__(self, "log_folder", str(path))

    @property
    def concerns_submitted_cells(self) -> bool:
        """Return whether the options concern cells that were submitted before."""
        return self.status or self.watch or self.retry_failed or self.cancel


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """Options for evaluating the checkpoints of a training run while it runs."""

    follow: Path | None = None
    """Folder of a training run, instead of --ckpt: wait for its checkpoints and evaluate each one
    once, as a curve. Default task: cifar10_knn."""
    pattern: tuple[str, ...] = ()
    """File name patterns of the checkpoints of --follow, in all subfolders. Default: *.ckpt, *.pth,
    *.pth.tar and snapshots/*.pt."""
    newest: bool = False
    """Evaluate the newest waiting checkpoint first, instead of the oldest."""
    settle_s: Annotated[float, Range(0, 86_400)] = 20.0
    """Copy a file once its size and time have not changed for this time in s."""
    until: Path | None = None
    """End --follow when this file exists, after the remaining checkpoints."""
    until_idle: Hours = 0.0
    """End --follow after this time in h without a new or changed checkpoint. 0: no limit."""
    until_job: str = ""
    """End --follow when the SLURM job with this id ends, after the remaining checkpoints."""
    stop_below: tuple[str, ...] = ()
    """TASK=VALUE in percent: end with exit status 3 if the main metric of a checkpoint is lower."""


@dataclass(frozen=True, kw_only=True)
class RunAll:
    """Evaluate checkpoints on every downstream task whose data exists."""

    ckpt: tuple[Path, ...] = ()
    """Backbone files, third-party checkpoints, or hf://ORG/REPO@REVISION/FILE."""
    name: tuple[str, ...] = ()
    """Row names in the tables, one per checkpoint. Default: the name of the file, or of its folder
    for a file such as backbone.pt or checkpoint.pth."""
    declared: Annotated[tuple[str, ...], tyro.conf.arg(name="trained-with")] = ()
    """Recipes that trained the checkpoints, for files that do not record them: one per checkpoint.
    '' removes the recipe that an earlier run declared."""
    branch: Annotated[tuple[str, ...], tyro.conf.arg(name="checkpoint-key")] = ()
    """For files with several ResNets, part of the key prefix of the one to evaluate, such as
    student: one per checkpoint."""
    encoder: tuple[str, ...] = ()
    """timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION, for checkpoints that are not
    torchvision-style ResNets. One for all, or one per checkpoint ('' for a ResNet)."""
    pool: tuple[Pool, ...] = ()
    """Pooling of an encoder's tokens or feature maps: cls, mean, patch-mean, cls+mean,
    cls-of-last-4 or cls-of-last-4+mean. Default: as the network defines. One for all encoders, or
    one per checkpoint."""
    input_px: tuple[str, ...] = ()
    """Image size of the encoder in px. Default: as its source defines. One for all encoders, or one
    per checkpoint."""
    input_mean: tuple[Mean, ...] = ()
    """Mean of red, green and blue (0 to 1) for normalization, if the encoder's source does not
    define it."""
    input_std: tuple[Std, ...] = ()
    """Standard deviation of red, green and blue (0 to 1); requires --input-mean."""
    random: bool = False
    """Also evaluate a random initialization of each network. Its row is named random, or
    random-NETWORK for further networks."""
    snapshots: tuple[Path, ...] = ()
    """Folders of pre-training snapshots, instead of --ckpt. Each folder becomes a curve. Default
    task: cifar10_knn."""
    following: Annotated[FollowOptions, tyro.conf.arg(name="")] = field(
        default_factory=FollowOptions
    )
    """Options for following a training run."""
    heads: tuple[str, ...] = ()
    """Subsets of the heads of LooC++ files, such as 0 0,1 0,2. Each adds a row to the tables."""
    tasks: str = ""
    """Tasks, separated by commas: ids, groups such as transfer_linear, patterns such as '*_knn', or
    papers such as lorac. If not given, all tasks that run by default."""
    skip: str = ""
    """Tasks to skip, in the same format."""
    suite: str = ""
    """Evaluate all tasks of one paper: jcl, co2, lorac, uniclr, looc or another. --tasks adds
    more."""
    seeds: str = "0"
    """Seeds, separated by commas. Tables show the mean and the standard deviation."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    """Folders and options of all evaluations."""
    workers: NumWorkers = 0
    """Evaluations that run in parallel on this machine, each on separate GPUs. 0: one per GPU (a
    task that trains the whole network uses all GPUs), or one without GPUs."""
    cluster: Annotated[SlurmOptions, tyro.conf.arg(name="")] = field(default_factory=SlurmOptions)
    """Options for running the evaluations on a SLURM cluster instead."""
    plan: bool = False
    """Print what would run, by groups of tasks, and exit."""
    plan_full: bool = False
    """Print what would run, one line per evaluation, and exit. Same as --plan full."""
    quiet: bool = False
    """Print only failures and the summary, neither the plan nor progress."""
    demo: bool = False
    """Generate small datasets, pre-train JCL on them, and evaluate it and a random
    initialization."""

    @property
    def makes_curves(self) -> bool:
        """Return whether the checkpoints are points of curves, apart from the tables' rows."""
        return bool(self.snapshots) or self.following.follow is not None

    def check_mode(self) -> None:
        """Raise ValueError for options that the requested mode does not use."""
        given, mode, unused = changed_fields(self), "", list[str]()
        of_cluster, of_follow = changed_fields(self.cluster), changed_fields(self.following)
        if self.cluster.concerns_submitted_cells:
            mode = "--status, --watch, --cancel or --retry-failed"
            used = {"status", "watch", "cancel", "retry_failed", "results", "runs", "quiet"}
            if self.cluster.retry_failed:
                used |= of_cluster.keys() - {"slurm", "cell_gpus"}
            unused = [name for name in given if name not in used]
        elif self.demo:
            mode, unused = "--demo", [n for n in given if n not in ("demo", "runs", "quiet")]
        elif self.snapshots:
            mode, unused = "--snapshots", [name for name in NOT_WITH_SNAPSHOTS if name in given]
        elif self.following.follow is not None:
            mode, unused = "--follow", [name for name in NOT_WITH_FOLLOW if name in given]
        if unused:
            options = ", ".join(map(option_of, unused))
            raise ValueError(f"{mode} cannot be combined with {options}")
        if of_cluster and not (self.cluster.slurm or self.cluster.concerns_submitted_cells):
            raise ValueError(f"{option_of(next(iter(of_cluster)))} has no effect without --slurm")
        if of_follow and self.following.follow is None:
            raise ValueError(f"{option_of(next(iter(of_follow)))} has no effect without --follow")
        if self.cluster.slurm and self.workers > 1:
            raise ValueError("--workers has no effect with --slurm. Use --parallel instead")
