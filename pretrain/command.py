"""The command of a run: its options and their defaults; without torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal

import tyro

from pretrain.recipes import RECIPES, Config, Recipe
from pretrain.running.command_line import OptionError, nearest, option_of
from pretrain.running.command_line import parse as parse_words
from pretrain.running.processes import has_bfloat16
from pretrain.running.ranges import (
    Count,
    NotNegative,
    NumWorkers,
    PositiveCount,
    Seed,
    check_ranges,
    numbers,
)

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Command(Generic[Config]):
    """Run one pre-training. After a stop or a kill, the same command resumes it."""

    data: Path
    """Folder of images, flat or with one folder per class. Only supervised training needs
    classes."""
    out: Path
    """Folder of the run: checkpoint, metrics, and the exported backbone.pt."""
    recipe: Recipe[Config]
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the networks; losses are float32. auto: bfloat16 on GPUs that support it,
    otherwise float32."""
    compile: bool = False
    """Compile the networks. The first start takes minutes longer and caches the graphs in
    OUT/compiled. The speedup on GPUs has not been measured."""
    checkpoint_activations: bool = False
    """Activation checkpointing: store only the input of each residual block, and recompute the
    activations for the gradients. Same results, a fraction of the memory, about a third more
    time."""
    read_every_steps: PositiveCount = 20
    """Steps between readings of the metrics. Each reading is logged and must be finite."""
    save_every_min: NotNegative = 10.0
    """Minutes between checkpoints. A stop and the end of the run also save one."""
    steps: Count = 0
    """Number of optimizer steps, instead of --epochs. 0: as many as the epochs have."""
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    style_bank: Path | None = None
    """Folder with one styled copy of every image per style, for recipes with texture."""
    colors_in: Literal["workers", "device"] = "workers"
    """Where color augmentations run. workers: in the loader, rounded to 8 bits as in PIL. device:
    on the GPU in floats, which needs fewer CPU cores and gives slightly different views."""
    workers: NumWorkers | None = None
    """Loader processes per GPU. None: as many as there are CPU cores per GPU, at most 32. Without a
    GPU, the main process makes the views of images that are in memory."""
    memory_gb: NotNegative = 2.0
    """Memory per process for decoded images, in GB. If all fit, each is decoded only once. This
    changes only the speed."""
    tolerated_images: Count = 0
    """Bad images allowed. Images that do not open are left out; an image that cannot be decoded is
    replaced by another one."""
    wandb: str = ""
    """Weights & Biases project to which TensorBoard events are copied; requires the package
    wandb."""
    snapshot_epochs: Count = 0
    """Epochs between exported snapshots, such as snapshots/epoch0010.pt. One more is exported
    before the first epoch. 0: no snapshots."""
    dry_run: bool = False
    """Print what would be done and the memory of one step, and exit."""

    def network_dtype(self, device_type: str) -> "torch.dtype":
        """Return the dtype of the networks' matrix products on cpu or cuda."""
        import torch  # not needed for --help and --list

        auto_bfloat16 = self.precision == "auto" and device_type == "cuda" and has_bfloat16()
        use_bfloat16 = auto_bfloat16 or self.precision == "bfloat16"
        return torch.bfloat16 if use_bfloat16 else torch.float32


def parse(name: str, arguments: list[str]) -> Command[Any]:
    """Parse a recipe's command: options from the dataclasses, defaults from the recipe.

    Raises OptionError for an unknown recipe, a number out of range, an option without effect, or a
    range, such as --crop-area, whose ends are not in order.
    """
    if name not in RECIPES:
        raise OptionError(
            f"no recipe {name!r}; did you mean {nearest(name, RECIPES)}? "
            f"python -m pretrain --list shows all {len(RECIPES)}"
        )
    recipe = RECIPES[name]
    config: Any = type(recipe.config)
    command: Command[Any] = parse_words(
        Command[config],
        arguments,
        default=Command(data=tyro.MISSING, out=tyro.MISSING, recipe=recipe),
        prog=f"python -m pretrain {name}",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    check_ranges(command)
    for option, values in numbers(command):
        if len(values) == 2 and values[0] > values[1]:
            text = " ".join(str(value).removesuffix(".0") for value in values)
            raise OptionError(f"{option_of(option)} {text}: expected the smaller number first")
    # a warm-up keeps its fraction of --epochs
    if (
        command.steps
        and not command.recipe.warmup_epochs
        and command.recipe.epochs != recipe.epochs
    ):
        raise OptionError(f"--epochs has no effect with --steps {command.steps}")
    for chosen, default in ((command.recipe, recipe), (command.recipe.config, recipe.config)):
        for option, (setting, values) in getattr(chosen, "effective_with", {}).items():
            value = getattr(chosen, setting)
            if getattr(chosen, option) != getattr(default, option) and value not in values:
                condition = f"{option_of(setting)} {value}"
                if value is False:
                    condition = option_of(f"no_{setting}")
                raise OptionError(f"{option_of(option)} has no effect with {condition}")
    return command
