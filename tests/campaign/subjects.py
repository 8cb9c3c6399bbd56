"""The commands of the campaign, and what they read."""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.campaign.processes import Commands
from tests.transfer.cells.many_images import generate_many
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


SNAPSHOTS = ("--snapshots", "INPUTS/trained/snapshots", "--name", "moco")
ITERATIONS = ("--iterations", "10", "--image-px", "64")
SUBJECTS: Mapping[str, Commands] = {
    "pre-training": (_pretrain("OUT/run", "--bn-splits", "2"),),
    "pre-training, two processes": (
        _torchrun(_pretrain("OUT/run", "--bn-splits", "1", "--epochs", "3")),
    ),
    "snapshots": (_pretrain("OUT/run", "--bn-splits", "2", "--snapshot-epochs", "1"),),
    "curves": (
        _evaluate("benchmarks.run_all", *SNAPSHOTS, "--tasks", "cifar10_knn,cifar10_lowshot_knn"),
    ),
    "linear probe": (_cell("cifar10_linear"),),
    "few labels": (_cell("in1k_semi_1pct@co2"),),
    "SVM": (_cell("voc07_svm"),),
    "detector": (_cell("coco_det", "--engine", "torchvision", *ITERATIONS),),
    "segmentation": (_cell("voc12_seg_fcn", *ITERATIONS),),
    "extraction, two processes": tuple(
        _cell(f"cifar10_{task}", data="many") for task in ("knn", "lowshot_knn")
    ),
    "run_all": (_run_all("cifar10_knn,cifar10_linear,voc07_svm"),),
    "run_all --workers 2": (_run_all("cifar10_knn,cifar10_lowshot_knn", "--workers", "2"),),
    "tables": (("benchmarks.tables", "--results", "OUT/results"),),
    "make-corruptions": (("tests.campaign.corruptions", "OUT/data"),),
}
"""Words after `python -m` of commands that are started together; INPUTS and OUT are folders."""


def prepare(subject: str, places: Places) -> None:
    """Put into a trial's folder what its commands find there and write beside."""
    if subject == "tables":
        shutil.copytree(ROOT / "results" / "records", places.out / "results" / "records")
    if subject == "make-corruptions":
        data = places.inputs / "data"
        (places.out / "data").mkdir(parents=True)
        for name in ("imagenet", "imagenet_subsets"):
            (places.out / "data" / name).symlink_to(data / name)
        shutil.copy(data / "small-data.json", places.out / "data")


def write_inputs(inputs: Path, subjects: Iterable[str], run: Callable[[Commands], None]) -> None:
    """Write what these subjects read, unless it is there already.

    run: runs commands to their end.
    """
    words = " ".join(word for name in subjects for command in SUBJECTS[name] for word in command)
    names = set(re.findall(r"INPUTS/(\w+)", words))
    names |= {"data"} if "make-corruptions" in subjects else set()
    names |= {"images"} if names & {"random", "trained"} else set()
    for name in sorted(names):  # images come before what is trained on them
        if (inputs / name / "complete").exists():
            continue
        shutil.rmtree(inputs / name, ignore_errors=True)
        if name == "data":
            generate(inputs / name, keys=DATA_KEYS)
        elif name == "many":
            generate_many(inputs / name, MANY_PER_CLASS)
        elif name == "images":
            _write_images(inputs / name)
        else:
            recipe, options = {
                "random": ("random/smoke", ()),
                "trained": ("moco/smoke", ("--snapshot-epochs", "1")),
            }[name]
            place = ("--data", str(inputs / "images"), "--out", str(inputs / name))
            run((("pretrain", recipe, *place, *options),))
            (inputs / name / "checkpoint.pt").unlink(missing_ok=True)
        (inputs / name / "complete").touch()


def _write_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(NUM_IMAGES):
        file = folder / str(i % NUM_KINDS) / f"{i:03d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(jpeg(paint(i % NUM_KINDS, (40, 48), rng)))
