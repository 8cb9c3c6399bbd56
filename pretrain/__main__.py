"""python -m pretrain RECIPE --data DIR --out DIR: one pre-training run.

python -m pretrain --list shows the recipes, and --list lorac in100 only some of them. torchrun
starts a run on several GPUs.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from pretrain.command import parse
from pretrain.recipes import RECIPES
from pretrain.running.command_line import OptionError, one_line_errors, run_command
from pretrain.running.console import aligned

COMPILED_GRAPHS = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable: folder of compiled graphs, which a resumed run uses again."""


def recipe_list(patterns: Sequence[str]) -> str:
    """Return a table of the recipes whose names contain all patterns."""
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
        if all(pattern in name for pattern in patterns)
    ]
    return "\n".join(aligned(rows))


@one_line_errors(OptionError)
def main(arguments: list[str]) -> int:
    """Run the command and return the exit status.

    0: finished; 1: failed while running; 2: wrong request; 75: stopped, can be resumed.
    """
    if arguments[:1] == ["--list"]:
        print(recipe_list(arguments[1:]))
        return 0
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help"):
        families = dict.fromkeys(recipe.partition("/")[0] for recipe in RECIPES)
        usage = f"The first argument is one of {len(RECIPES)} recipes of {', '.join(families)}"
        print(f"{__doc__}\n{usage}; --list shows them.", file=sys.stderr)
        return 0 if name else 2
    command = parse(name, arguments[1:])
    if find_spec("cv2") is None:
        raise OptionError(
            "pre-training requires OpenCV, which is not installed: "
            "pip install opencv-python-headless"
        )
    is_given = COMPILED_GRAPHS in os.environ
    from pretrain.start import start  # imports torch, so not for --help and --list

    if command.compile and not is_given:  # torch has set it to a local folder
        os.environ[COMPILED_GRAPHS] = str(command.out.absolute() / "compiled")
    return start(name, command)


if __name__ == "__main__":
    run_command(main, only_prints="--list" in sys.argv)
