"""The command of a run: its options, their defaults and their ranges; it needs no torch.

A range says what an option can mean at all. Whether options fit each other, the data and the
processes is checked in settings.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal

import tyro

from pretrain.recipes import RECIPES, Config, Recipe
from pretrain.running.command_line import OptionError, Range, check_ranges, nearest, numbers
from pretrain.running.command_line import parse as parse_words
from pretrain.running.processes import has_bfloat16

if TYPE_CHECKING:
    import torch

DeviceChoice = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Options of execution; beyond rounding, only the precision changes a run's numbers."""

    precision: Precision = "auto"
    """Arithmetic of the networks; losses are float32. auto: bfloat16 on GPUs that have it, float32
    elsewhere."""
    compile: bool = False
    """Compile the networks: minutes at the start; what it saves on GPUs is not measured."""
    checkpoint_activations: bool = False
    """Keep the input of each residual block alone and compute the rest again for the gradients:
    same numbers, a fraction of the memory, about a third more time."""
    read_every_steps: int = 20
    """Steps between readings of the metrics, which are then logged and checked to be finite."""
    save_every_min: float = 10.0
    """Minutes between checkpoints; a stop and the end of the run save one as well."""

    def network_dtype(self, device_type: str) -> "torch.dtype":
        """Return the type of the networks' matrix products on a device type, cpu or cuda."""
        import torch  # not above: --help and --list need none

        auto = self.precision == "auto" and device_type == "cuda" and has_bfloat16()
        low = auto or self.precision == "bfloat16"
        return torch.bfloat16 if low else torch.float32


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
    colors_in: Literal["workers", "device"] = "workers"
    """Place where views get their colors: workers round to eight bits as PIL does; a GPU spares
    cores, computes in floats, and makes slightly other views."""
    workers: int | None = None
    """Processes, for each GPU, that make views; None: as many as the machine has cores for it, at
    most 32. A CPU makes the views of images in memory itself."""
    memory_gb: float = 2.0
    """Memory of each process for decoded images; if all fit, each is decoded once. It changes the
    speed alone."""
    tolerated_images: int = 0
    """Bad images allowed: those that do not open are left out, and another image takes the place of
    one that does not decode."""
    safetensors: bool = False
    """Write backbone.safetensors as well."""
    wandb: str = ""
    """Project of Weights & Biases to log to as well; needs the package wandb."""
    snapshot_epochs: int = 0
    """Export snapshots/epoch0010.pt, one every so many epochs and one before the first; 0: none."""
    dry_run: bool = False
    """Print what would be done and the memory of a step, and stop."""


def parse(name: str, arguments: list[str]) -> Command[Any]:
    """Return a recipe's command: options from the dataclasses, defaults from the recipe.

    An OptionError names an unknown recipe or a number that is out of range; the two ends of a
    range, such as --crop-area, must be in order.
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
    check_ranges(command, RANGES)
    for option, values in numbers(command):
        if len(values) == 2 and values[0] > values[1]:
            words = " ".join(str(value).removesuffix(".0") for value in values)
            flag = f"--{option.replace('_', '-')} {words}"
            raise OptionError(f"{flag}: expected the smaller number first")
    for option, (setting, heeding) in HEEDED_WITH.items():
        for given, own in ((command.recipe, recipe), (command.recipe.config, recipe.config)):
            changed = getattr(given, option, None) != getattr(own, option, None)
            if changed and (value := getattr(given, setting, heeding[0])) not in heeding:
                flag = f"--{option.replace('_', '-')}"
                raise OptionError(f"{flag} has no effect with --{setting} {value}")
    return command


WHITENED = "variant", ("whitening", "trace", "trace_unscaled")
ANY_PRIOR = "prior", ("laplace", "gaussian", "margin", "batch")
HEEDED_WITH: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "milestones": ("schedule", ("step",)),
    "final_learning_rate": ("schedule", ("cosine",)),
    "trust_coefficient": ("optimizer", ("lars",)),
    "exclude_vectors": ("optimizer", ("lars",)),
    **dict.fromkeys(("ridge", "groups", "prenorm", "pooled_stats", "detach_covariance"), WHITENED),
    **dict.fromkeys(("sym_on", "ce_both_directions"), ("variant", ("affinity", "whitening"))),
    "beta": ("prior", ("laplace", "margin", "batch")),
    "margin": ("prior", ("margin",)),
    "batch_scope": ("prior", ("batch",)),
    **dict.fromkeys(("gaussian_center", "gaussian_variance"), ("prior", ("gaussian",))),
    **dict.fromkeys(("prior_from", "legacy_untempered"), ANY_PRIOR),
}
"""Option -> another, and its values with which the first one changes a run."""

NOT_NEGATIVE = Range(0)
POSITIVE = Range(0, open_below=True)
SHARE = Range(0, 1)
POSITIVE_SHARE = Range(0, 1, open_below=True)
MOMENTUM = Range(0, 1, open_above=True)
COUNT = Range(0, 2**31 - 1)
POSITIVE_COUNT = Range(1, 2**31 - 1)
VIEWS = Range(1, 1000)
DIMENSION = Range(1, 2**20)
SIDE_PX = Range(1, 2**13)

RANGES: Mapping[str, Range] = {
    name: each
    for each, names in (
        # of run, execution and recipe
        (NOT_NEGATIVE, "final_learning_rate learning_rate memory_gb save_every_min weight_decay"),
        (COUNT, "snapshot_epochs steps tolerated_images"),
        (POSITIVE_COUNT, "read_every_steps"),
        (POSITIVE, "trust_coefficient"),
        (SHARE, "milestones"),
        (MOMENTUM, "sgd_momentum"),
        (Range(2, 2**24), "batch_size"),
        (Range(0, 1e6), "epochs warmup_epochs"),
        (Range(0, 2**32 - 1), "seed"),
        (Range(0, SIDE_PX.most), "test_px"),
        (Range(0, 1024), "workers"),
        # of the views
        (SIDE_PX, "size_px small_size_px"),
        (POSITIVE_SHARE, "crop_area small_crop_area"),
        (POSITIVE, "crop_aspect blur_sigma_px std"),
        (SHARE, "brightness contrast saturation"),
        (Range(0, 0.5), "hue"),
        (SHARE, "jitter_probability gray_probability flip_probability rotation_probability"),
        (SHARE, "blur_probability second_blur_probability small_blur_probability"),
        (SHARE, "solarize_probability second_solarize_probability texture_probability"),
        (Range(), "mean gaussian_center margin"),
        # of the methods: a name means the same in all of them
        (POSITIVE, "temperature target_temperature first_target_temperature"),
        (POSITIVE, "consistency_temperature epsilon gaussian_variance loss_scale"),
        (NOT_NEGATIVE, "consistency_weight covariance_weight invariance_weight"),
        (NOT_NEGATIVE, "off_diagonal_weight proximal_weight symmetry_weight variance_weight"),
        (NOT_NEGATIVE, "beta ridge"),
        (SHARE, "momentum temperature_warmup"),
        (SHARE, "last_layer_from prior_from prototypes_from queue_from"),
        (MOMENTUM, "bank_momentum center_momentum label_smoothing"),
        (DIMENSION, "embedding_dim hidden_dim output_dim predictor_dim num_prototypes groups"),
        (VIEWS, "num_keys num_large_views num_assigned_views num_heads num_orders"),
        (Range(2, VIEWS.most), "num_views"),
        (Range(0, VIEWS.most), "num_small_views"),
        (POSITIVE_COUNT, "bn_splits num_images whitening_size"),
        (COUNT, "num_negatives"),
        (Range(1, 2**24), "num_classes"),
        (Range(1, 100), "num_hidden"),
        (Range(0, 2**27), "queue_size"),
        (Range(1, 1000), "sinkhorn_iterations"),
    )
    for name in names.split()
}
"""Range of a numeric option by the name of its field; any other number must be finite."""
