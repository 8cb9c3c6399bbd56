"""Whether the settings of a run fit each other, asked before it starts."""

from collections.abc import Sequence
from typing import Any

from pretrain.data import BatchPlan
from pretrain.parts.view import Augmentation, View
from pretrain.recipes import Recipe
from pretrain.views import ViewRecipe


class SettingsError(ValueError):
    """The run cannot be what was asked for."""


def check_schedule(recipe: Recipe[Any]) -> None:
    """A SettingsError if the warm-up is as long as the run."""
    if recipe.warmup_epochs and recipe.warmup_epochs >= recipe.epochs:
        raise SettingsError(
            f"--warmup-epochs {recipe.warmup_epochs:g} leaves nothing of --epochs "
            f"{recipe.epochs:g} for the schedule after it; choose fewer"
        )


def steps_of(recipe: Recipe[Any], steps: int, plan: BatchPlan) -> int:
    """Optimizer steps of a run; a SettingsError if it asks for a run and gets none."""
    num_steps = steps or round(recipe.epochs * plan.steps_per_epoch)
    if num_steps < 0 or (recipe.epochs and not num_steps):
        raise SettingsError(
            f"--epochs {recipe.epochs:g} of {plan.steps_per_epoch} steps and --steps {steps} make "
            f"a run of {num_steps} steps; choose more"
        )
    return num_steps


def check_batch(recipe: Recipe[Any], num_processes: int) -> None:
    """A SettingsError if a batch does not split as the method does, or overfills its queue."""
    splits, queue_size = (
        getattr(recipe.config, name, default)
        for name, default in (("bn_splits", 1), ("queue_size", recipe.batch_size))
    )
    images = recipe.batch_size // num_processes
    if images % splits:
        raise SettingsError(
            f"the {images} images of a process do not split into --bn-splits {splits} equal "
            f"groups; choose a divisor"
        )
    whitening_size = getattr(recipe.config, "whitening_size", 1)
    if recipe.batch_size % whitening_size:
        raise SettingsError(
            f"a batch of {recipe.batch_size} does not split into sub-batches of --whitening-size "
            f"{whitening_size}; choose a divisor"
        )
    if 0 < queue_size < recipe.batch_size:  # 0 where a method may do without a queue
        raise SettingsError(
            f"a batch of {recipe.batch_size} does not fit into --queue-size {queue_size}; "
            f"choose a longer queue or a smaller batch"
        )


def batch_norm_groups(recipe: Recipe[Any], num_processes: int) -> int:
    """Return how many groups of a batch have batch-norm statistics of their own.

    The numbers of a run depend on it, and on the number of processes only through it, except for
    rounding and a local prior. 1 where batch norm is over all processes; else each process has
    --bn-splits groups.
    """
    if getattr(recipe.config, "sync_bn", False):
        return 1
    splits: int = getattr(recipe.config, "bn_splits", 1)
    return num_processes * splits


def local_prior_images(recipe: Recipe[Any], num_processes: int) -> int:
    """Return how many images share LORAC's batch-wise prior; 0 where there is no local one."""
    config = recipe.config
    local = getattr(config, "prior", "") == "batch" and config.batch_scope == "local"
    return recipe.batch_size // num_processes if local else 0


def check_views(recipe: ViewRecipe, views: Sequence[View], *, has_styles: bool) -> None:
    """A SettingsError if a method names an augmentation, or a user styles, that never happen."""
    for view in views:
        if "crop" in view.without:
            raise SettingsError("no view goes without its crop: it needs one to have its size")
        for name in {*view.copies, *view.without, *view.differs}:
            if not happens(recipe, name):
                raise SettingsError(
                    f"the method's views share or withhold {name}, which this recipe never "
                    f"changes; give it a probability, such as --{name}-probability 0.5"
                )
    if has_styles and not happens(recipe, "texture"):
        raise SettingsError(
            "--style-bank has no effect on views that keep their texture; "
            "pass --texture-probability as well, or no bank"
        )


def happens(recipe: ViewRecipe, augmentation: Augmentation) -> bool:
    """Whether any view is ever changed so."""
    match augmentation:
        case "crop":
            return True
        case "color":
            return recipe.jitter_probability > 0 or recipe.gray_probability > 0
        case "blur":
            return max(recipe.blur_probability, recipe.of_second().blur_probability) > 0
        case "solarize":
            return max(recipe.solarize_probability, recipe.of_second().solarize_probability) > 0
        case "flip":
            return recipe.flip_probability > 0
        case "rotation":
            return recipe.rotation_probability > 0
        case "texture":
            return recipe.texture_probability > 0
