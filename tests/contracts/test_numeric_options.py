"""Numeric options out of range are refused by all commands.

Each option is tried with 0, -1, nan, a huge value and text. For a refused value, the command must
exit with status 2 and name option and range; other values are only parsed. Options of pre-training
have their own test.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from typing import get_type_hints

import pytest
import tyro

import slurm.__main__
import transfer.__main__
from benchmarks import run_all, tables
from benchmarks.planning.options import RunAll
from pretrain.running.command_line import option_of
from pretrain.running.ranges import ranges_of
from slurm.resources import LIMITS
from transfer.cells.command import Evaluate

HUGE = "1" + "0" * 30
RESOURCE_LIMITS = {name: (least, most) for name, least, most in LIMITS}
NO_FILE = ("--ckpt", "none.pth")


@dataclass(frozen=True)
class Door:
    """A command: its options, main function, and required arguments."""

    options: type
    main: Callable[[list[str]], int]
    words: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def status(self, words: tuple[str, ...]) -> int | str | None:
        """Return the exit status of the command with these words."""
        try:
            return self.main([*self.words, *words, *self.last])
        except SystemExit as end:
            return end.code


REQUIRED = {"inspect": ("none.pth",), "test-head": ("--ckpt", "none.pth", "--head", "none.pth")}
"""Required arguments of subcommands of transfer."""
DOORS = {
    "transfer TASK": Door(Evaluate, transfer.__main__.main, ("cifar10_knn", *NO_FILE)),
    **{
        name: Door(options, transfer.__main__.main, (name, *REQUIRED.get(name, ())))
        for name, options in transfer.__main__.COMMANDS.items()
    },
    "run_all": Door(RunAll, run_all.main),
    "tables": Door(tables.TableOptions, tables.main),
    "slurm": Door(slurm.__main__.SubmitOptions, slurm.__main__.main, last=("--", "true")),
}


def numeric_fields(options: type) -> Iterator[tuple[str, bool]]:
    """Yield each numeric field, and whether it is an integer.

    Fields of nested dataclasses are included.
    """
    for name, kind in get_type_hints(options).items():
        args = str(kind)
        if is_dataclass(kind) and isinstance(kind, type):
            yield from numeric_fields(kind)
        elif re.search(r"\b(int|float)\b", args):
            yield name, "float" not in args


def contains(options: type, option: str, value: float) -> bool:
    """Return whether the range of an option holds a value."""
    if options is slurm.__main__.SubmitOptions:
        minimum, maximum = RESOURCE_LIMITS[option]
        return minimum <= value <= maximum
    return value in ranges_of(options)[option]


def parses(door: Door, words: tuple[str, ...]) -> bool:
    """Return whether the options are read.

    Those of transfer's commands follow their name.
    """
    named = bool(door.words) and door.words[0] in transfer.__main__.COMMANDS
    previous = door.words[1:] if named else door.words
    return tyro.cli(door.options, args=[*previous, *words]) is not None


def test_a_numeric_option_refuses_what_it_cannot_mean(capsys: pytest.CaptureFixture[str]) -> None:
    offenders = []
    for name, door in DOORS.items():
        for option, is_integer in numeric_fields(door.options):
            flag = option_of(option)
            for value in ("0", "-1", "nan", HUGE, "word"):
                readable = value == "0" or (value == HUGE and not is_integer)
                if readable and contains(door.options, option, float(value)):
                    right = parses(door, (flag, value))
                else:
                    ended = door.status((flag, value))
                    message = "".join(capsys.readouterr())
                    fact = flag if value in ("word", "nan", HUGE) else f"{flag} {value}: expected "
                    right = ended == 2 and fact in message and "Traceback" not in message
                offenders += [(name, flag, value)] * (not right)
    assert offenders == []


def test_lists_of_numbers_and_lengths_are_checked_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = ("-1", "nan", HUGE, "word")
    tried = {
        ("run_all", "--seeds"): (*refused, ""),
        ("run_all", "--heads"): (*refused, ""),
        ("transfer TASK", "--schedule"): ("0", *refused),
        ("run_all", "--schedule"): ("0", *refused),
    }
    for (name, flag), values in tried.items():
        for value in values:
            args = () if DOORS[name].words else NO_FILE
            assert DOORS[name].status((*args, f"{flag}={value}")) == 2, (name, flag, value)
            assert f"error: {flag} " in capsys.readouterr().err
