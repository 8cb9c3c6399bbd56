"""The commands of the campaign, their inputs, and what counts as their result."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.campaign.processes import Commands
from tests.transfer.running.many_images import generate_many
from transfer.datasets.synthetic.generate import generate
from transfer.datasets.synthetic.patterns import jpeg, paint

ROOT = Path(__file__).parents[2]
DATA_KEYS = ("cifar10", "in1k_1pct", "in100", "voc07", "coco17", "voc12_seg")
NUM_IMAGES, NUM_KINDS = 32, 4
"""Unlabeled images for pre-training, and the folders that they lie in."""
MANY_PER_CLASS = 1_400
"""Images of each of six classes: an extraction with loader processes, in two parts."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of a trial."""

    inputs: Path
    """Data, checkpoints and records that all trials read."""
    out: Path
    """Folder of this trial alone."""

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words with both folders in the place of their names."""
        return tuple(
            word.replace("INPUTS", str(self.inputs)).replace("OUT", str(self.out)) for word in words
        )


def _no_preparation(places: Places) -> None:
    """Leave the trial's folder empty."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Commands that are started together, disturbed, and started again."""

    commands: Commands
    """Words after `python -m`; INPUTS and OUT stand for folders."""
    prepare: Callable[[Places], None] = _no_preparation
    """Puts into the trial's folder what the commands need to write to."""


def _pretrain(out: str, *options: str) -> tuple[str, ...]:
    small = ("--batch-size", "8", "--size-px", "32", "--epochs", "4", "--read-every-steps", "2")
    # checkpoints within epochs, so that kills hit many of them
    often = ("--save-every-min", "0.03", "--device", "cpu", "--seed", "3")
    place = ("--data", "INPUTS/images", "--out", out)
    return ("pretrain", "jcl/smoke", *place, *small, *often, *options)


def _evaluate(module: str, *words: str, data: str = "data") -> tuple[str, ...]:
    places = ("--data", f"INPUTS/{data}", "--results", "OUT/results", "--runs", "OUT/runs")
    return (module, *words, "--schedule", "smoke", *places)


def _cell(task: str, *options: str, data: str = "data") -> tuple[str, ...]:
    return _evaluate("transfer", task, "--ckpt", "INPUTS/random/backbone.pt", *options, data=data)


def _torchrun(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *words)


def _run_all(tasks: str, *options: str) -> tuple[str, ...]:
    files = ("--ckpt", "INPUTS/random/backbone.pt", "INPUTS/trained/backbone.pt")
    rows = ("--name", "random", "trained")
    return _evaluate("benchmarks.run_all", *files, *rows, "--tasks", tasks, *options)


def _copy_records(places: Places) -> None:
    shutil.copytree(places.inputs / "records", places.out / "results" / "records")


def _link_imagenet(places: Places) -> None:
    """Show the data in a folder of the trial, where the command writes beside them."""
    data = places.inputs / "data"
    (places.out / "data").mkdir(parents=True)
    for name in ("imagenet", "imagenet_subsets"):
        (places.out / "data" / name).symlink_to(data / name)
    shutil.copy(data / "small-data.json", places.out / "data")


ITERATIONS = ("--iterations", "10", "--image-px", "64")
SUBJECTS: Mapping[str, Subject] = {
    "pre-training": Subject(commands=(_pretrain("OUT/run", "--bn-splits", "2"),)),
    "pre-training, two processes": Subject(
        commands=(_torchrun(_pretrain("OUT/run", "--bn-splits", "1", "--epochs", "3")),)
    ),
    "snapshots": Subject(
        commands=(_pretrain("OUT/run", "--bn-splits", "2", "--snapshot-epochs", "1"),)
    ),
    "curves": Subject(
        commands=(
            (
                *_evaluate("benchmarks.curves", "--snapshots", "INPUTS/trained/snapshots"),
                *("--name", "moco", "--tasks", "cifar10_knn,cifar10_lowshot_knn"),
            ),
        )
    ),
    "linear probe": Subject(commands=(_cell("cifar10_linear"),)),
    "few labels": Subject(commands=(_cell("in1k_semi_1pct@co2"),)),
    "SVM": Subject(commands=(_cell("voc07_svm"),)),
    "detector": Subject(commands=(_cell("coco_det", "--engine", "torchvision", *ITERATIONS),)),
    "segmentation": Subject(commands=(_cell("voc12_seg_fcn", *ITERATIONS),)),
    "extraction, two processes": Subject(
        commands=tuple(_cell(f"cifar10_{task}", data="many") for task in ("knn", "lowshot_knn")),
    ),
    "run_all": Subject(commands=(_run_all("cifar10_knn,cifar10_linear,voc07_svm"),)),
    "run_all --workers 2": Subject(
        commands=(_run_all("cifar10_knn,cifar10_lowshot_knn", "--workers", "2"),)
    ),
    "tables": Subject(
        commands=(("benchmarks.tables", "--results", "OUT/results"),), prepare=_copy_records
    ),
    "make-corruptions": Subject(
        commands=(("tests.campaign.corruptions", "OUT/data"),), prepare=_link_imagenet
    ),
}


def write_inputs(inputs: Path, run: Callable[[Commands], None]) -> None:
    """Write all that the subjects read, unless it is there already.

    run: runs commands to their end.
    """
    done = inputs / "complete"
    if done.exists():
        return
    shutil.rmtree(inputs, ignore_errors=True)
    generate(inputs / "data", keys=DATA_KEYS)
    generate_many(inputs / "many", MANY_PER_CLASS)
    rng = np.random.default_rng(0)
    for i in range(NUM_IMAGES):
        file = inputs / "images" / str(i % NUM_KINDS) / f"{i:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(jpeg(paint(i % NUM_KINDS, (40, 48), rng)))
    shutil.copytree(ROOT / "results" / "records", inputs / "records")
    places = Places(inputs=inputs, out=inputs)
    for name, recipe in (("random", "random/smoke"), ("trained", "moco/smoke")):
        words = ("pretrain", recipe, "--data", "INPUTS/images", "--out", f"OUT/{name}")
        options = ("--snapshot-epochs", "1") if name == "trained" else ()
        run((places.words((*words, *options)),))
        (inputs / name / "checkpoint.pt").unlink(missing_ok=True)
    done.touch()
