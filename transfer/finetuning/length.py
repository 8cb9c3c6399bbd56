"""Recipes of detectors and FCNs for another number of iterations or another batch size."""

from dataclasses import replace

from transfer.finetuning.recipe import AnyRecipe
from transfer.running.schedule import length_fraction


def at_schedule(recipe: AnyRecipe, schedule: str) -> AnyRecipe:
    """Return the recipe for a schedule's share of the iterations; smoke: a tiny network."""
    if schedule == "paper":
        return recipe
    return recipe.tiny() if schedule == "smoke" else of_length(recipe, length_fraction(schedule))


def of_length(recipe: AnyRecipe, share: float) -> AnyRecipe:
    """Return the recipe for a share of the iterations.

    The warm-up keeps its length, but ends at latest halfway to the first drop: a drop within the
    warm-up would make all of it ten times lower.
    """
    milestones = tuple(max(1, round(step * share)) for step in recipe.milestones)
    return replace(
        recipe,
        iterations=max(1, round(recipe.iterations * share)),
        milestones=milestones,
        warmup_iterations=min(recipe.warmup_iterations, max(1, milestones[0] // 2)),
    )


def with_batch(recipe: AnyRecipe, batch_size: int) -> AnyRecipe:
    """Return the recipe for another batch by the linear scaling rule.

    The learning rate scales with the batch, all counts of iterations with its inverse.
    """
    factor = batch_size / recipe.batch_size
    return replace(
        recipe,
        batch_size=batch_size,
        learning_rate=recipe.learning_rate * factor,
        iterations=max(1, round(recipe.iterations / factor)),
        milestones=tuple(max(1, round(step / factor)) for step in recipe.milestones),
        warmup_iterations=round(recipe.warmup_iterations / factor),
    )
