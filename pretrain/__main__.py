"""python -m pretrain RECIPE --data DIR --out DIR: one pre-training run.

python -m pretrain --list shows the recipes, --list lorac in100 some of them; torchrun starts a run
on many GPUs.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

import tyro

from pretrain.checkpoint import CheckpointError
from pretrain.data import DataError
from pretrain.launch import LaunchError, launched
from pretrain.loop import stages
from pretrain.metrics import NotFiniteError
from pretrain.progress import duration, say
from pretrain.recipes import RECIPES
from pretrain.run import (
    Command,
    cautions,
    claimed_by_first,
    describe,
    prepare,
    write_backbone,
    write_snapshot,
)
from pretrain.settings import SettingsError
from pretrain.stop import EXIT_STATUS, stop_request


def main(arguments: list[str]) -> int:
    """Exit status: 0 finished, 1 failed on the way, 2 wrong request, 75 stopped, to be resumed."""
    if arguments[:1] == ["--list"]:
        print(recipe_list(arguments[1:]))
        return 0
    name = arguments[0] if arguments else ""
    if name not in RECIPES:
        print(f"{__doc__}\nThe first argument is a recipe: {', '.join(RECIPES)}", file=sys.stderr)
        return 0 if name in ("-h", "--help") else 2
    try:
        return run(name, parse(name, arguments[1:]))
    except (DataError, LaunchError, CheckpointError, SettingsError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (NotFiniteError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def parse(name: str, arguments: list[str]) -> Command[Any]:
    """The command of a recipe; its options come from the dataclasses, with the recipe's values."""
    recipe = RECIPES[name]
    config: Any = type(recipe.config)
    command: Command[Any] = tyro.cli(
        Command[config],
        default=Command(data=tyro.MISSING, out=tyro.MISSING, recipe=recipe),
        args=arguments,
        prog=f"python -m pretrain {name}",
        config=(tyro.conf.OmitArgPrefixes,),
    )
    return command


def run(name: str, command: Command[Any]) -> int:
    """Train, export, and say so in one line on stdout; the exit status."""
    started_s = time.monotonic()
    with stop_request() as stop, claimed_by_first(command.out), launched(command.device) as process:
        job = prepare(name, command, process)
        if process.speaks:
            say(describe(job))
            for caution in cautions(job):
                say(f"note: {caution}")
        if command.dry_run:
            return 0
        steps = 0
        for steps in stages(job, stop):
            if process.speaks and job.pauses_after(steps):
                write_snapshot(job, command, steps)
        finished = steps == job.num_steps
        if process.speaks:
            path = write_backbone(job, command, steps)
            state = "" if finished else f"stopped by {stop.name}, start again to go on  "
            epochs = steps / job.feed.plan.steps_per_epoch
            taken = duration(time.monotonic() - started_s)
            print(f"{name}  {state}{epochs:g} epochs  {taken}  ->  {path}")
        return 0 if finished else EXIT_STATUS


def recipe_list(words: Sequence[str] = ()) -> str:
    """The recipes whose names hold all these words, one per line."""
    header = ("recipe", "data", "epochs", "batch", "rate", "from", "stands for")
    rows = [
        (
            name,
            recipe.images,
            f"{recipe.epochs:g}",
            str(recipe.batch_size),
            f"{recipe.learning_rate:g}",
            recipe.paper,
            recipe.table_row,
        )
        for name, recipe in RECIPES.items()
        if all(word in name for word in words)
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
