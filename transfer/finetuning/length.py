"""The same training, longer or shorter, or with another batch: recipes of detectors and FCNs."""

from dataclasses import replace

from transfer.finetuning.recipe import AnyRecipe
from transfer.running.schedule import share


def at_schedule(recipe: AnyRecipe, schedule: str) -> AnyRecipe:
    """Trained for a schedule's share of the iterations; smoke: a tiny network."""
    if schedule == "paper":
        return recipe
    return recipe.tiny() if schedule == "smoke" else of_length(recipe, share(schedule))


def of_length(recipe: AnyRecipe, share: float) -> AnyRecipe:
    """For a share of the iterations; the warm-up stays, up to half the way to the first drop.

    A drop within the warm-up would make all of it ten times lower.
    """
    milestones = tuple(max(1, round(step * share)) for step in recipe.milestones)
    return replace(
        recipe,
        iterations=max(1, round(recipe.iterations * share)),
        milestones=milestones,
        warmup_iterations=min(recipe.warmup_iterations, max(1, milestones[0] // 2)),
    )


def with_batch(recipe: AnyRecipe, batch_size: int) -> AnyRecipe:
    """Linear scaling rule: learning rate by the batch, all counts of iterations by its inverse."""
    factor = batch_size / recipe.batch_size
    return replace(
        recipe,
        batch_size=batch_size,
        learning_rate=recipe.learning_rate * factor,
        iterations=round(recipe.iterations / factor),
        milestones=tuple(round(step / factor) for step in recipe.milestones),
        warmup_iterations=round(recipe.warmup_iterations / factor),
    )
