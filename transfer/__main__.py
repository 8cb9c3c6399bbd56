"""python -m transfer TASK | get-data | check-data | register-subset | inspect | generate-data |
test-head | --list.

Evaluate one checkpoint on one task, or inspect checkpoints and data. To run all tasks, use
benchmarks/run_all.py. Exit status: 0 done, 1 failed, 2 wrong request, 75 stopped by a signal and
resumable.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from pretrain.running import stop
from pretrain.running.command_line import one_line_errors, parse, run_command
from pretrain.running.console import aligned
from pretrain.running.processes import process_group, require_launcher
from pretrain.running.ranges import Count, Seed, check_ranges
from transfer.cells.command import Evaluate
from transfer.datasets.catalog import DATASETS, dataset_info
from transfer.datasets.check import check, register_subsets, render, render_found
from transfer.datasets.expected import SMALL_DATA, DataError
from transfer.datasets.folders import data_folder
from transfer.encoders.architectures import BackboneError
from transfer.encoders.opening import open_file
from transfer.encoders.options import AnyEncoder, EncoderOptions
from transfer.encoders.report import render as render_inspection
from transfer.getting.command import GetData
from transfer.tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class CheckData:
    """Compare the counts of datasets with the published ones, and look for broken images."""

    sets: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Keys of the datasets to check. Default: all; missing ones are only listed."""
    data: Path = field(default_factory=data_folder)
    """Folder of all datasets; $DATASETS or ./datasets."""
    decode: bool = True
    """Decode every image. Otherwise, read only headers and end markers."""

    def __call__(self) -> int:
        """Print the reports; return 1 if an existing dataset is incomplete."""
        keys = self.sets or tuple(DATASETS)
        for key in keys:
            dataset_info(key)  # raise an error for an unknown key before hours of checks
        reports = [check(key, self.data, decode=self.decode) for key in keys]
        print(render(reports) if self.sets else render_found(reports))
        return int(any(report.exists and not report.ok for report in reports))


@dataclass(frozen=True, kw_only=True)
class RegisterSubset:
    """Register subsets of datasets: write their present counts to small-data.json.

    Later runs check the datasets against these counts instead of the published ones.
    """

    sets: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Keys of the datasets that are subsets."""
    data: Path = field(default_factory=data_folder)
    """Folder of all datasets; $DATASETS or ./datasets."""
    tolerate: Count = 0
    """Bad images and annotations allowed in each dataset."""

    def __call__(self) -> int:
        """Write the file; return the exit status.

        Raises DataError for a dataset that cannot be read.
        """
        if not self.sets:
            raise ValueError("no dataset given: pass the keys of the datasets that are subsets")
        described = register_subsets(self.sets, self.data, tolerated=self.tolerate)
        for key, (sizes, notes) in described.items():
            counts = ", ".join(f"{split} {number:,}" for split, number in sizes.counts.items())
            print(f"{key}: {sizes.classes} classes, {counts}  ->  {self.data / SMALL_DATA}")
            for note in notes:
                print(f"  {note}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Print the network, input, tensors and training of a checkpoint file."""

    file: Annotated[Path, tyro.conf.Positional]
    """Checkpoint file."""
    branch: Annotated[str, tyro.conf.arg(name="checkpoint-key")] = ""
    """For a file with several ResNets, part of the key prefix of the one to inspect, such as
    student."""
    network: AnyEncoder = field(default_factory=EncoderOptions)
    """Options for a checkpoint of another network."""
    all: bool = False
    """Also list all training settings in the file."""

    def __call__(self) -> int:
        """Print the report; return the exit status."""
        encoder, inspection = open_file(self.file, self.network, branch=self.branch)
        print(render_inspection(encoder, inspection, everything=self.all))
        return 0


@dataclass(frozen=True, kw_only=True)
class GenerateData:
    """Write a small, learnable version of every dataset in its published layout."""

    data: Path = Path("datasets-small")
    """Folder to write to."""
    seed: Seed = 0
    """Seed of all random draws."""

    def __call__(self) -> int:
        """Write the datasets; return the exit status."""
        from transfer.datasets.synthetic.generate import generate

        generate(self.data, seed=self.seed)
        print(f"small versions of {len(DATASETS)} datasets  ->  {self.data}")
        return 0


@dataclass(frozen=True, kw_only=True)
class TestHead:
    """Test a published linear segmentation head (mmsegmentation format) on VOC 2012 val."""

    ckpt: Path
    """Weights of the encoder."""
    head: Path
    """Checkpoint of the head, as mmsegmentation saves it."""
    network: AnyEncoder = field(default_factory=EncoderOptions)
    """Options that select the encoder."""
    data: Path = field(default_factory=data_folder)
    """Folder that contains all datasets. Default: $DATASETS, or ./datasets."""

    def __call__(self) -> int:
        """Print the mIoU; return the exit status."""
        from transfer.released_head import score_head

        print(score_head(self.ckpt, self.network, self.head, self.data))
        return 0


Command = GetData | CheckData | RegisterSubset | Inspect | GenerateData | TestHead
COMMANDS: dict[str, type[Any]] = {
    "get-data": GetData,
    "check-data": CheckData,
    "register-subset": RegisterSubset,
    "inspect": Inspect,
    "generate-data": GenerateData,
    "test-head": TestHead,
}


@one_line_errors(
    *(BackboneError, DataError, ValueError, FileNotFoundError),
    failed=(ArithmeticError, MemoryError, OSError, RuntimeError),
)
def main(args: list[str]) -> int:
    """Run the command line; return the exit status.

    It is 0 if done, 1 if failed, 2 for an invalid request.
    """
    if args[:1] == ["--list"]:
        rows = [
            (
                key,
                task.protocol,
                ", ".join(task.datasets()),
                (type(task).__doc__ or "").splitlines()[0],
            )
            for key, task in TASKS.items()
        ]
        print("\n".join(aligned(rows)))
        return 0
    if args[:1] == ["describe-data"]:
        print("note: describe-data is now register-subset", file=sys.stderr)
        args = ["register-subset", *args[1:]]
    command = COMMANDS.get(args[0]) if args else None
    stop.listen(at_once=command in (GetData, CheckData))  # both can be killed at any time
    if command is not None:
        run: Command = parse(command, args[1:], prog=f"python -m transfer {args[0]}")
        check_ranges(run)
        return run()
    request = parse(Evaluate, args, prog="python -m transfer", description=__doc__)
    require_launcher()
    request = request.checked()
    with process_group():
        return request()


if __name__ == "__main__":
    only_prints = {*sys.argv[1:2]} & {"--list", "check-data", "register-subset", "inspect"}
    run_command(main, only_prints=bool(only_prints) or "--plan" in sys.argv)
