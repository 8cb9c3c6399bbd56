"""The options of run_all: what is evaluated, how, and where it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from pretrain.running.command_line import Range
from slurm.resources import Queue
from transfer.cells.request import Settings
from transfer.encoders.options import Pool
from transfer.finetuning.options import COUNT, RANGES

OPTION_RANGES: Mapping[str, Range] = {
    **RANGES,
    "cell_gpus": Range(0, 1024),
    "cpus": Range(0, 4096),
    "hours": Range(0, 1e5),
    "max_gpus": COUNT,
    "memory_gb": Range(0, 1e6),
    "parallel": COUNT,
}
"""Ranges by the name of the field; a name means the same in all commands."""


def given_options(request: Any) -> list[str]:
    """Return the options that differ from their defaults, such as --seeds."""
    words: list[str] = []
    for name, default in vars(type(request)()).items():
        value = getattr(request, name)
        if is_dataclass(value):
            words += given_options(value)
        elif value != default:
            words.append("--as" if name == "declared" else f"--{name.replace('_', '-')}")
    return words


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """Options for cells that run as jobs of a SLURM cluster."""

    slurm: bool = False
    """Submit the cells that are not finished as job arrays, and exit. With --plan, only print the
    scripts that sbatch would get."""
    status: bool = False
    """Print the states of all cells that were submitted, or started on a machine."""
    watch: bool = False
    """Print changed counts until all cells ended, and write runs/status.html; needs --status."""
    retry_failed: bool = False
    """Submit the failed and cancelled cells again; each continues from its last checkpoint."""
    cancel: bool = False
    """Cancel all submitted cells that are not finished."""
    parallel: int = 0
    """Cells of one array that run at a time; there is one array for each size of job. 0: as many as
    the cluster allows."""
    max_gpus: int = 0
    """GPUs of one array at a time, in place of --parallel where its jobs have several. The plan
    shows the sum of all arrays. 0: as many as the cluster allows."""
    hours: float = 0.0
    """Time limit of every cell in h; a cell that needs longer continues in a new job. 0: from the
    protocol, at most 24."""
    cell_gpus: int = 1
    """GPUs of a cell on a frozen network; cells that train the whole network use --gpus. 0: a
    cluster without GPUs."""
    cpus: int = 0
    """Processors of every cell. 0: 8 for each of its GPUs."""
    memory_gb: float = 0.0
    """Memory of every cell in GB. 0: the cluster's default."""
    tables_partition: str = ""
    """Partition of the job that writes the tables, which needs no GPU; the cells' if not given."""
    log_folder: str = ""
    """Folder of logs and job files, on a file system that all nodes share; runs/slurm if not
    given."""
    queue: Annotated[Queue, tyro.conf.arg(name="")] = field(default_factory=Queue)
    """Options of the queue."""

    def __post_init__(self) -> None:
        if self.log_folder:  # a later --retry-failed may run in another folder
            path = Path(self.log_folder).expanduser().absolute()
            object.__setattr__(self, "log_folder", str(path))

    def require_used(self) -> None:
        """Raise ValueError for an option of clusters on a run that submits nothing."""
        words = given_options(self)
        if words and not (self.slurm or self.concerns_submitted_cells):
            raise ValueError(f"{words[0]} is for cells on a cluster: say --slurm, too")

    @property
    def concerns_submitted_cells(self) -> bool:
        """Return whether the options concern cells that were submitted before."""
        return self.status or self.watch or self.retry_failed or self.cancel


@dataclass(frozen=True, kw_only=True)
class RunAll:
    """Evaluate checkpoints on every downstream task whose data is there."""

    ckpt: tuple[Path, ...] = ()
    """Backbone files, checkpoints of other projects, or hf://ORG/REPO@REVISION/FILE."""
    name: tuple[str, ...] = ()
    """Names of the rows in the tables, one per checkpoint; default: the name of the file, or of its
    folder for a file such as backbone.pt or checkpoint.pth."""
    declared: Annotated[tuple[str, ...], tyro.conf.arg(name="as")] = ()
    """Recipes of files that do not say how they were made, one per checkpoint; '' for none, which
    withdraws that of an earlier run."""
    branch: tuple[str, ...] = ()
    """Parts of the prefixes of the ResNets to take, such as student, one per checkpoint."""
    encoder: tuple[str, ...] = ()
    """timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION, for checkpoints that are not
    ResNets of torchvision's form: one for all, or one per checkpoint, with '' for a ResNet."""
    pool: tuple[Pool, ...] = ()
    """How an encoder's tokens or maps become one feature: cls, mean, patch-mean, cls+mean,
    cls-of-last-4 or cls-of-last-4+mean; the network's own way if not given. One for all encoders,
    or one per checkpoint."""
    input_px: tuple[str, ...] = ()
    """Side of the encoder's images in px, where its source does not say, or for another size. One
    for all encoders, or one per checkpoint."""
    input_mean: tuple[float, ...] = ()
    """Mean of red, green and blue from 0 to 1 that images are normalized by, where the source of
    the encoder does not say."""
    input_std: tuple[float, ...] = ()
    """Standard deviation of red, green and blue, beside --input-mean."""
    random: bool = False
    """Also evaluate a random initialization of each network: random, for further networks
    random-NETWORK."""
    snapshots: tuple[Path, ...] = ()
    """Folders of snapshots, in place of --ckpt: each run becomes a curve; --tasks is cifar10_knn
    unless given."""
    heads: tuple[str, ...] = ()
    """Subsets of a LooC++ file's heads, such as 0 0,1 0,2; each adds a row to the tables."""
    tasks: str = ""
    """Tasks, separated by commas: ids, groups such as transfer_linear, patterns such as '*_knn', or
    the tasks of a paper, such as lorac; all that run by default if not given."""
    skip: str = ""
    """Tasks that do not run, in the same form."""
    suite: str = ""
    """Tasks of one paper: jcl, co2, lorac, uniclr, looc or another; --tasks adds to them."""
    seeds: str = "0"
    """Seeds, separated by commas; tables show mean and standard deviation."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)
    """Folders and options of all cells."""
    workers: int = 0
    """Cells that run at the same time on this machine, each on its own GPUs. 0: one for each GPU,
    while trainings of whole networks use all of them; one without a GPU."""
    cluster: Annotated[SlurmOptions, tyro.conf.arg(name="")] = field(default_factory=SlurmOptions)
    """Options for running the cells on a SLURM cluster instead."""
    plan: bool = False
    """Only print what would run, by groups of tasks."""
    plan_full: bool = False
    """Only print what would run, a line per cell; --plan full is the same."""
    quiet: bool = False
    """Print neither the plan nor progress: only failures and the summary."""
    demo: bool = False
    """Generate small data, pre-train JCL on it, evaluate it and a random initialization."""
