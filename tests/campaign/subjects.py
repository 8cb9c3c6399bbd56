"""The commands of the campaign, and their inputs."""

import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.campaign.processes import Commands, run_to_end
from tests.tiny_methods import write_images
from tests.transfer.cells.many_images import generate_many
from transfer.datasets.synthetic.generate import generate

ROOT = Path(__file__).parents[2]
DATA_KEYS = ("cifar10", "in1k_1pct", "voc07", "coco17", "voc12_seg")
NUM_IMAGES = 32
"""Images for pre-training."""
PRETRAINED = {
    "random": ("random/smoke",),
    "trained": ("moco/smoke", "--snapshot-epochs", "1"),
}
"""The runs that produce the evaluated files, and their arguments."""
MANY_PER_CLASS = 1_400
"""Images of each of six classes.

Enough for a two-part extraction with loader processes.
"""


@dataclass(frozen=True, kw_only=True)
class TrialFolders:
    """Folders of a trial."""

    inputs: Path
    """Data, checkpoints and records that all trials read."""
    out: Path
    """Output folder of this trial."""

    def fill_in(self, args: tuple[str, ...]) -> tuple[str, ...]:
        """Return the arguments with INPUTS and OUT replaced by the folders."""
        return tuple(
            arg.replace("INPUTS", str(self.inputs)).replace("OUT", str(self.out)) for arg in args
        )


def _pretrain(out: str, *options: str) -> tuple[str, ...]:
    small = ("--batch-size", "8", "--size-px", "32", "--epochs", "4", "--read-every-steps", "2")
    # checkpoints within epochs, so that kills hit many of them
    often = ("--save-every-min", "0.03", "--device", "cpu", "--seed", "3")
    location = ("--data", "INPUTS/images", "--out", out)
    return ("pretrain", "jcl/smoke", *location, *small, *often, *options)


def _evaluate(module: str, *args: str, data: str = "data") -> tuple[str, ...]:
    folders = ("--data", f"INPUTS/{data}", "--results", "OUT/results", "--runs", "OUT/runs")
    return (module, *args, "--schedule", "smoke", *folders)


def _cell(task: str, *options: str, data: str = "data") -> tuple[str, ...]:
    return _evaluate("transfer", task, "--ckpt", "INPUTS/random/backbone.pt", *options, data=data)


def _torchrun(args: tuple[str, ...]) -> tuple[str, ...]:
    return ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", *args)


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
}
"""Arguments after `python -m` of commands that are started together.

INPUTS and OUT are folders.
"""


def prepare(subject: str, folders: TrialFolders) -> None:
    """Write the files that a subject's commands expect in its folder."""
    if subject == "tables":
        shutil.copytree(
            ROOT / "results" / "reference" / "records", folders.out / "results" / "records"
        )


def write_inputs(inputs: Path, subjects: Iterable[str]) -> None:
    """Write the input files of these subjects."""
    args = " ".join(arg for name in subjects for command in SUBJECTS[name] for arg in command)
    names = set(re.findall(r"INPUTS/(\w+)", args))
    shutil.rmtree(inputs, ignore_errors=True)
    inputs.mkdir(parents=True)
    if "data" in names:
        generate(inputs / "data", keys=DATA_KEYS)
    if "many" in names:
        generate_many(inputs / "many", MANY_PER_CLASS)
    if names & {"images", *PRETRAINED}:
        (inputs / "images").mkdir()
        write_images(inputs / "images", NUM_IMAGES)
    for name in names & PRETRAINED.keys():
        location = ("--data", str(inputs / "images"), "--out", str(inputs / name))
        run_to_end((("pretrain", *PRETRAINED[name], *location),), inputs.with_suffix(".log"))
        (inputs / name / "checkpoint.pt").unlink(missing_ok=True)
