"""The command of a run: what its options are called, and their defaults; it needs no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal

import tyro

from pretrain.precision import Precision
from pretrain.ranges import check_ranges
from pretrain.recipes import RECIPES, Config, Recipe

DeviceChoice = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Options of execution; beyond rounding, only the precision changes a run's numbers."""

    precision: Precision = "auto"
    """Arithmetic of the networks; losses are float32. auto: bfloat16 on GPUs, float32 on CPUs."""
    channels_last: bool = True
    """Memory layout of images and weights."""
    compile: bool = False
    """Compile the networks: minutes at the start, faster steps on GPUs."""
    read_every_steps: int = 20
    """Steps between readings of the metrics, which are then logged and checked to be finite."""
    save_every_min: float = 10.0
    """Minutes between checkpoints within an epoch; each epoch ends with one as well."""


@dataclass(frozen=True, kw_only=True)
class Command(Generic[Config]):
    """One pre-training run; after a stop or a kill the same command resumes it."""

    data: Path
    """Folder of images, flat or with a folder per class; only supervised training needs classes."""
    out: Path
    """Folder of the run: checkpoint, metrics, and the exported backbone.pt."""
    recipe: Recipe[Config]
    execution: Execution = field(default_factory=Execution)
    steps: int = 0
    """Optimizer steps instead of epochs; 0: as many as the epochs hold."""
    seed: int = 0
    device: DeviceChoice = "auto"
    style_bank: Path | None = None
    """Folder with a styled copy of every image for each style, for recipes with texture."""
    colors_in: Literal["auto", "device", "workers"] = "auto"
    """Place where views from files get colors; auto: workers on a CPU, the device on a GPU."""
    workers: int = 4
    """Processes, for each GPU, that decode images where these do not fit into memory."""
    memory_gb: float = 2.0
    """Memory of each process for decoded images; if all fit, each is decoded once."""
    tolerated_images: int = 0
    """Unreadable images that may be left out."""
    safetensors: bool = False
    """Write backbone.safetensors as well."""
    wandb: str = ""
    """Project of Weights & Biases to log to as well; needs the package wandb."""
    snapshot_epochs: int = 0
    """Export snapshots/epoch0010.pt, one every so many epochs and one before the first; 0: none."""
    dry_run: bool = False
    """Print what would be done, and stop."""


def parse(name: str, arguments: list[str]) -> Command[Any]:
    """Return a recipe's command: options from the dataclasses, defaults from the recipe.

    An OptionError names a number that is out of range.
    """
    recipe = RECIPES[name]
    config: Any = type(recipe.config)
    command: Command[Any] = tyro.cli(
        Command[config],
        default=Command(data=tyro.MISSING, out=tyro.MISSING, recipe=recipe),
        args=arguments,
        prog=f"python -m pretrain {name}",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    check_ranges(command)
    return command
