"""Commands that make what a figure lacks, ready for a shell."""

from collections.abc import Sequence

FOLDERS = {
    "in100": "$IMAGENET100/train",
    "in1k": "$IMAGENET/train",
    "cifar10": "$CIFAR10/train",
    "cifar100": "$CIFAR100/train",
}
"""Folders of pre-training images by the first word of a recipe's name; the user sets these."""
EXPLANATION = (
    "In these commands, $IMAGENET100, $CIFAR10 and the like are folders whose train/ holds a "
    "folder of images per class, and $DATASETS is the folder of all data sets for evaluation."
)
NAME_IN_LOOP = "${r/\\//-}"
"""Name of the row of recipe $r, as bash writes it: row_name."""


def pretrain_and_evaluate(recipes: Sequence[str], tasks: str) -> list[str]:
    """Return the command that pre-trains recipes, on the same images, and evaluates each."""
    if len(recipes) == 1:
        recipe = recipes[0]
        return [pretrain(recipe), evaluate(recipe, row_name(recipe), tasks)]
    loop = f"{pretrain('$r', like=recipes[0])} && {evaluate('$r', NAME_IN_LOOP, tasks)}"
    return [f"for r in {' '.join(recipes)}; do {loop}; done"]


def pretrain_and_follow(recipes: Sequence[str], task: str) -> list[str]:
    """Return the commands that pre-train recipes with snapshots and evaluate all of these."""
    loop = pretrain("$r", "--snapshot-epochs 10", like=recipes[0])
    folders = " ".join(f"runs/{recipe}/snapshots" for recipe in recipes)
    names = " ".join(map(row_name, recipes))
    return [
        f"for r in {' '.join(recipes)}; do {loop}; done",
        f"python benchmarks/run_all.py --snapshots {folders} --name {names} --data $DATASETS "
        f"--tasks {task}",
    ]


def pretrain(recipe: str, options: str = "", like: str = "") -> str:
    """Return the command that runs a recipe; `like` is one on the same images for a variable."""
    dataset = (like or recipe).partition("/")[2].partition("-")[0]
    end = f" {options}" if options else ""
    return f"python -m pretrain {recipe} --data {FOLDERS[dataset]} --out runs/{recipe}{end}"


def evaluate(recipe: str, name: str, tasks: str) -> str:
    """Return the command that evaluates a recipe's backbone on tasks."""
    file = "encoder.pt" if "view_statistics" in tasks else "backbone.pt"  # with its projector
    return (
        f"python benchmarks/run_all.py --ckpt runs/{recipe}/{file} --name {name} "
        f"--data $DATASETS --tasks {tasks}"
    )


def row_name(recipe: str) -> str:
    """Return the name of a recipe's backbone in the tables."""
    return recipe.replace("/", "-")
