"""Checks before a run starts that its settings fit each other."""

from collections.abc import Sequence
from typing import Any

from pretrain.command import Command
from pretrain.data.views import ViewRecipe
from pretrain.methods import METHODS
from pretrain.parts.view import Augmentation, View
from pretrain.recipes import Recipe
from pretrain.running.command_line import option_of


class SettingsError(ValueError):
    """Settings that contradict each other."""


def check_recipe(recipe: Recipe[Any], num_processes: int) -> None:
    """Raise SettingsError for an invalid schedule or batch.

    The warm-up must be shorter than the run. The batch must be divisible as the method requires,
    and its keys must fit into the queue.
    """
    if recipe.warmup_epochs and recipe.warmup_epochs >= recipe.epochs:
        raise SettingsError(
            f"--warmup-epochs {recipe.warmup_epochs:g} leaves nothing of --epochs "
            f"{recipe.epochs:g} for the schedule after it: choose fewer"
        )
    if recipe.schedule == "step" and not recipe.milestones:
        raise SettingsError("--schedule step needs --milestones, such as 0.6 0.8 of the run")
    needs = METHODS[recipe.method].batch_needs(recipe.config)
    num_images = recipe.batch_size // num_processes
    if needs.bn_splits and num_images % needs.bn_splits:
        raise SettingsError(
            f"the {num_images} images of a process do not split into --bn-splits "
            f"{needs.bn_splits} equal groups: choose a divisor"
        )
    num_groups = needs.norm_groups(num_processes)
    if recipe.batch_size // num_groups < 2:
        raise SettingsError(
            f"--batch-size {recipe.batch_size} leaves fewer than two images to each of "
            f"{num_groups} groups of batch norm (processes times --bn-splits): choose fewer groups "
            f"or a larger batch"
        )
    if recipe.batch_size % needs.whitening_size:
        raise SettingsError(
            f"a batch of {recipe.batch_size} does not split into sub-batches of --whitening-size "
            f"{needs.whitening_size}: choose a divisor"
        )
    if 0 < needs.queue_size < recipe.batch_size:
        raise SettingsError(
            f"a batch of {recipe.batch_size} does not fit into --queue-size {needs.queue_size}: "
            f"choose a longer queue or a smaller batch"
        )


def check_execution(command: Command[Any], views: Sequence[View], device_type: str) -> None:
    """Raise SettingsError for what torch does not support.

    With activation checkpointing, torch.compile chooses itself which activations to store. On CPUs
    in bfloat16, torch 2.15 computes weight gradients of 1e29 for a 3x3 convolution of stride 2 on a
    1x1 map.
    """
    if command.compile and command.checkpoint_activations:
        raise SettingsError("--compile with --checkpoint-activations: choose one of the two")
    if device_type != "cpu" or command.network_dtype(device_type).itemsize == 4:
        return
    recipe = command.recipe
    reduction = 4 if recipe.stem == "cifar" else 16  # pixels of a view per pixel before layer4
    sizes = [recipe.views.small_size_px if view.small else recipe.views.size_px for view in views]
    if (smallest := min(sizes)) <= reduction:
        raise SettingsError(
            f"--precision bfloat16 on a CPU with views of {smallest} px: layer4 gets maps of 1x1, "
            f"for which torch 2.15 computes wrong gradients. Pass --precision float32, or choose "
            f"views above {reduction} px"
        )


def check_views(recipe: ViewRecipe, views: Sequence[View], *, has_styles: bool) -> None:
    """Raise SettingsError if the views or the style bank contradict the recipe."""
    for view in views:
        if "crop" in view.without:
            raise SettingsError(
                f"a view excludes {', '.join(view.without)}, but every view needs a crop"
            )
        # a weak view excludes at least one augmentation that the recipe applies
        excludes_any = any(is_ever_applied(recipe, name) for name in view.without)
        for name in {*view.copies, *(() if excludes_any else view.without)}:
            if not is_ever_applied(recipe, name):
                raise SettingsError(
                    f"the method's views share or exclude {name}, which this recipe never "
                    f"changes: pass a probability, such as --{name}-probability 0.5"
                )
    if has_styles and not is_ever_applied(recipe, "texture"):
        raise SettingsError(
            "--style-bank has no effect with --texture-probability "
            f"{recipe.texture_probability:g}: pass --texture-probability above 0, or no bank"
        )


def check_view_options(recipe: ViewRecipe, published: ViewRecipe, views: Sequence[View]) -> None:
    """Raise SettingsError if an option of the views differs from `published` without effect."""
    large = [view for view in views if not view.small]
    recipes = [recipe, recipe.second_view_recipe()][: len(large)]
    if len(large) < len(views):
        recipes.append(recipe.small_view_recipe())
    has_jitter = any(view_recipe.jitter_probability for view_recipe in recipes)
    has_gray = any(view_recipe.gray_probability for view_recipe in recipes)
    has_blur = any(view_recipe.blur_probability for view_recipe in recipes)
    small = ("small_size_px", "small_crop_area", "small_blur_probability")
    second = ("second_blur_probability", "second_solarize_probability")
    jitter = ("brightness", "contrast", "saturation", "hue")
    for options, is_effective, reason in (
        (small, len(large) < len(views), "the method has no small views"),
        (second, len(large) > 1, "the method has one large view"),
        (jitter, has_jitter, "no view gets jitter: pass a --jitter-probability, too"),
        (("gray_first",), has_jitter and has_gray, "no view gets both grayscale and jitter"),
        (("blur_sigma_px",), has_blur, "no view is blurred: pass a --blur-probability, too"),
    ):
        for option in options:
            if not is_effective and getattr(recipe, option) != getattr(published, option):
                raise SettingsError(f"{option_of(option)} has no effect, since {reason}")


def is_ever_applied(recipe: ViewRecipe, augmentation: Augmentation) -> bool:
    """Return whether a recipe ever applies an augmentation to any view."""
    names = {"color": ["jitter", "gray"]}.get(augmentation, [augmentation])
    second = recipe.second_view_recipe()
    return augmentation == "crop" or any(
        getattr(view_recipe, f"{name}_probability") > 0
        for view_recipe in (recipe, second)
        for name in names
    )
