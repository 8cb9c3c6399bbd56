"""Numeric options of all commands but pre-training's: what lies outside their range is refused.

Each is tried with 0, -1, nan, a huge value and a word. A refused value is given to the command's
main function, which must end with status 2 and name option and range; others are only parsed.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, get_type_hints

import pytest
import tyro

import benchmarks.curves
import benchmarks.gpu_check
import benchmarks.run_all
import benchmarks.speed.bench_annotations
import benchmarks.speed.bench_commands
import benchmarks.speed.bench_crops
import benchmarks.speed.bench_detection
import benchmarks.speed.bench_features
import benchmarks.speed.bench_probe
import benchmarks.speed.bench_rates
import benchmarks.speed.bench_shared
import benchmarks.speed.bench_slurm
import benchmarks.speed.bench_svm
import benchmarks.status
import benchmarks.tables
import pretrain.speed.bench_views
import pretrain.speed.benchmark
import slurm.__main__
import transfer.__main__
from benchmarks.planning.option_ranges import OPTION_RANGES
from benchmarks.speed.command import SPEED_RANGES as BENCH_RANGES
from pretrain.speed.options import SPEED_RANGES, Benchmark
from slurm.resources import LIMITS
from transfer.cells.command import Evaluate
from transfer.running.option_ranges import RANGES

HUGE = "1" + "0" * 30
RESOURCE_LIMITS = {name: (least, most) for name, least, most in LIMITS}


@dataclass(frozen=True)
class CommandLine:
    """One command: its options, its main function, words that it needs, words at its end."""

    options: type
    main: Callable[[list[str]], int]
    ranges: Mapping[str, Any]
    words: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


BENCHMARKS = {
    "bench_annotations": CommandLine(
        benchmarks.speed.bench_annotations.Settings,
        benchmarks.speed.bench_annotations.main,
        BENCH_RANGES,
    ),
    "bench_commands": CommandLine(
        benchmarks.speed.bench_commands.Settings, benchmarks.speed.bench_commands.main, BENCH_RANGES
    ),
    "bench_crops": CommandLine(
        benchmarks.speed.bench_crops.Settings, benchmarks.speed.bench_crops.main, BENCH_RANGES
    ),
    "bench_detection": CommandLine(
        benchmarks.speed.bench_detection.Settings,
        benchmarks.speed.bench_detection.main,
        BENCH_RANGES,
    ),
    "bench_features": CommandLine(
        benchmarks.speed.bench_features.Settings,
        benchmarks.speed.bench_features.main,
        BENCH_RANGES,
        ("--ckpt", "none.pth"),
    ),
    "bench_probe": CommandLine(
        benchmarks.speed.bench_probe.Settings, benchmarks.speed.bench_probe.main, BENCH_RANGES
    ),
    "bench_rates": CommandLine(
        benchmarks.speed.bench_rates.Settings,
        benchmarks.speed.bench_rates.main,
        BENCH_RANGES,
        ("--photographs", "none"),
    ),
    "bench_shared": CommandLine(
        benchmarks.speed.bench_shared.Settings, benchmarks.speed.bench_shared.main, BENCH_RANGES
    ),
    "bench_slurm": CommandLine(
        benchmarks.speed.bench_slurm.Request, benchmarks.speed.bench_slurm.main, BENCH_RANGES
    ),
    "bench_svm": CommandLine(
        benchmarks.speed.bench_svm.Settings, benchmarks.speed.bench_svm.main, BENCH_RANGES
    ),
}
TASK = CommandLine(Evaluate, transfer.__main__.main, RANGES, ("cifar10_knn", "--ckpt", "none.pth"))
COMMANDS = {
    "transfer TASK": TASK,
    **{
        name: CommandLine(options, transfer.__main__.main, RANGES, (name,))
        for name, options in transfer.__main__.COMMANDS.items()
    },
    "run_all": CommandLine(benchmarks.run_all.RunAll, benchmarks.run_all.main, OPTION_RANGES),
    "curves": CommandLine(
        benchmarks.curves.Request, benchmarks.curves.main, RANGES, ("--snapshots", "none")
    ),
    "tables": CommandLine(benchmarks.tables.Request, benchmarks.tables.main, {}),
    "status": CommandLine(benchmarks.status.Request, benchmarks.status.main, {}),
    "slurm": CommandLine(
        slurm.__main__.Request, slurm.__main__.main, RESOURCE_LIMITS, last=("--", "true")
    ),
    **BENCHMARKS,
    "gpu_check": CommandLine(
        benchmarks.gpu_check.Request, benchmarks.gpu_check.main, benchmarks.gpu_check.RANGES
    ),
    "pretrain.speed.benchmark": CommandLine(Benchmark, pretrain.speed.benchmark.main, SPEED_RANGES),
    "pretrain.speed.bench_views": CommandLine(
        pretrain.speed.bench_views.Benchmark, pretrain.speed.bench_views.main, SPEED_RANGES
    ),
}


def numeric_fields(options: type) -> Iterator[tuple[str, bool]]:
    """Yield the name of each numeric field, also of nested dataclasses, and if it is an integer."""
    for name, kind in get_type_hints(options).items():
        words = str(kind)
        if is_dataclass(kind) and isinstance(kind, type):
            yield from numeric_fields(kind)
        elif re.search(r"\b(int|float)\b", words):
            yield name, "float" not in words


NUMBERS = [
    pytest.param(command, option, is_integer, id=f"{name} --{option}")
    for name, command in COMMANDS.items()
    for option, is_integer in numeric_fields(command.options)
]


def contains(ranges: Mapping[str, Any], option: str, value: float) -> bool:
    """Return whether a range holds a value; those of slurm are the least and the largest one."""
    allowed = ranges[option]
    return allowed[0] <= value <= allowed[1] if isinstance(allowed, tuple) else value in allowed


@pytest.mark.parametrize(("command", "option", "is_integer"), NUMBERS)
def test_a_numeric_option_refuses_what_it_cannot_mean(
    command: CommandLine, option: str, is_integer: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{option.replace('_', '-')}"
    for value in ("0", "-1", "nan", HUGE, "word"):
        words = [*command.words, flag, value]
        readable = value == "0" or (value == HUGE and not is_integer)
        if readable and contains(command.ranges, option, float(value)):
            assert tyro.cli(command.options, args=parsed(command, words)) is not None
        else:
            assert status_of(command, words) == 2
            message = "".join(capsys.readouterr())
            assert flag in message
            assert "Traceback" not in message
            assert value in ("word", "nan", HUGE) or f"{flag} {value}: expected " in message


def parsed(command: CommandLine, words: list[str]) -> list[str]:
    """Return the words that are parsed: those of transfer's commands follow the command's name."""
    return words[1:] if words[0] in transfer.__main__.COMMANDS else words


def status_of(command: CommandLine, words: list[str]) -> int | str | None:
    """Return the exit status of a command line."""
    try:
        return command.main([*words, *command.last])
    except SystemExit as end:
        return end.code


def test_every_range_belongs_to_an_option() -> None:
    options = {name: set(dict(numeric_fields(line.options))) for name, line in COMMANDS.items()}
    of_transfer = options["transfer TASK"] | options["generate-data"] | options["make-corruptions"]
    assert of_transfer == set(RANGES)
    assert options["run_all"] | {"seed", "heads"} | set(RANGES) == set(OPTION_RANGES)
    assert options["slurm"] == set(RESOURCE_LIMITS)
    speed = options["pretrain.speed.benchmark"] | options["pretrain.speed.bench_views"]
    assert speed == set(SPEED_RANGES)
    assert set().union(*(options[name] for name in BENCHMARKS)) == set(BENCH_RANGES)
    assert options["gpu_check"] == set(benchmarks.gpu_check.RANGES)


@pytest.mark.parametrize("value", ["-1", "nan", HUGE, "word", ""])
@pytest.mark.parametrize("option", ["seeds", "heads"])
def test_numbers_between_commas_are_checked_as_well(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--ckpt", "none.pth", f"--{option}={value}"]
    assert status_of(COMMANDS["run_all"], words) == 2
    assert f"error: --{option} " in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "nan", HUGE, "word"])
@pytest.mark.parametrize("name", ["transfer TASK", "run_all", "curves"])
def test_a_length_is_a_name_or_a_share(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = COMMANDS[name]
    words = [*(command.words or ("--ckpt", "none.pth")), f"--schedule={value}"]
    assert status_of(command, words) == 2
    assert f"error: --schedule {value!r}: expected " in capsys.readouterr().err
