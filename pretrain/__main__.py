"""python -m pretrain RECIPE --data DIR --out DIR: one pre-training run.

python -m pretrain --list shows the recipes, --list lorac in100 some of them; torchrun starts a run
on many GPUs.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from pretrain.command import parse
from pretrain.recipes import RECIPES
from pretrain.running.command_line import OptionError, one_line_errors, run_command

COMPILED_GRAPHS = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable: the folder of compiled graphs, which a resumed run reads again."""


def recipe_list(words: Sequence[str] = ()) -> str:
    """Return the recipes whose names contain all these words, one per line in columns."""
    rows = [("recipe", "data", "epochs", "batch", "rate", "from", "stands for")]
    rows += [
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (map(str.ljust, row, widths) for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


@one_line_errors(OptionError)
def main(arguments: list[str]) -> int:
    """Run the command and return the exit status.

    0: finished; 1: failed on the way; 2: wrong request; 75: stopped, to be resumed.
    """
    if arguments[:1] == ["--list"]:
        print(recipe_list(arguments[1:]))
        return 0
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help"):
        families = dict.fromkeys(recipe.partition("/")[0] for recipe in RECIPES)
        told = f"The first argument is a recipe, one of {len(RECIPES)}, of {', '.join(families)}"
        print(f"{__doc__}\n{told}; --list shows them.", file=sys.stderr)
        return 0 if name else 2
    command = parse(name, arguments[1:])
    if find_spec("cv2") is None:
        raise OptionError(
            "the views of pre-training need OpenCV, which is not installed: "
            "pip install opencv-python-headless"
        )
    is_given = COMPILED_GRAPHS in os.environ
    from pretrain.start import start  # not above: it imports torch, and --help and --list end here

    if command.execution.compile and not is_given:  # torch has set it to a folder of this machine
        os.environ[COMPILED_GRAPHS] = str(command.out.absolute() / "compiled")
    return start(name, command)


if __name__ == "__main__":
    run_command(main, only_prints="--list" in sys.argv)
