"""Numeric options have ranges; other values are refused before any work."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from pretrain.__main__ import main
from pretrain.command import Command, parse
from pretrain.recipes import RECIPES
from pretrain.running.command_line import OptionError
from pretrain.running.ranges import check_ranges, ranges_of

PLACES = ["--data", "d", "--out", "o"]
HUGE = "1" + "0" * 30
UNBOUNDED = ("gaussian_center", "margin", "mean")
"""Options that may be negative."""


def numeric_fields(options: Any) -> dict[str, str]:
    """Return the annotations of numeric fields, also of nested dataclasses."""
    result: dict[str, str] = {}
    types = get_type_hints(type(options))
    for spec in fields(options):
        value, args = getattr(options, spec.name), str(types[spec.name])
        if is_dataclass(value):
            result |= numeric_fields(value)
        # a fact of the paper is not an option
        elif re.search(r"\b(int|float)\b", args) and "Suppress" not in str(spec.type):
            result[spec.name] = args.removeprefix("<class '").removesuffix("'>")
    return result


def options_by_recipe() -> dict[str, tuple[str, str]]:
    """Return a recipe and the annotation for every numeric option.

    The option has an effect in this recipe.
    """
    result: dict[str, tuple[str, str]] = {}
    for name, recipe in RECIPES.items():
        command: Command[Any] = Command(data=Path("d"), out=Path("o"), recipe=recipe)
        conditions = {**recipe.effective_with, **getattr(recipe.config, "effective_with", {})}
        values = {**vars(recipe.config), **vars(recipe)}
        for option, args in numeric_fields(command).items():
            setting, effective = conditions.get(option, ("method", (recipe.method,)))
            if values[setting] in effective:
                result.setdefault(option, (name, args))
    return result


OPTIONS = options_by_recipe()


def command(recipe: str) -> Command[Any]:
    return Command(data=Path("d"), out=Path("o"), recipe=RECIPES[recipe])


RANGES = {option: ranges_of(command(recipe))[option] for option, (recipe, _) in OPTIONS.items()}


def is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> bool:
    """Return whether a value is refused.

    The message must name the option, and the exit status must be 2.
    """
    recipe, args = OPTIONS[option]
    count = args.count("float") if args.startswith("tuple") and "..." not in args else 1
    flag = f"--{option.replace('_', '-')}"
    try:
        parse(recipe, [*PLACES, flag, *[value] * count])
    except SystemExit as end:
        message, status = "".join(capsys.readouterr()), end.code
    except OptionError as error:
        message, status = str(error), 2
    else:
        return False
    assert flag in message
    assert status == 2
    return True


def test_every_numeric_option_declares_its_range_in_each_recipe() -> None:
    for name in RECIPES:
        options = command(name)
        assert set(ranges_of(options)) == set(numeric_fields(options)), name


def test_every_recipe_is_in_range() -> None:
    for recipe in RECIPES.values():
        check_ranges(recipe)


def test_a_numeric_option_refuses_what_it_cannot_mean(capsys: pytest.CaptureFixture[str]) -> None:
    for option in OPTIONS:
        is_integer = OPTIONS[option][1] == "int"
        expected = {
            "word": True,
            "nan": True,
            "-1": option not in UNBOUNDED,
            "0": 0 not in RANGES[option],
            HUGE: is_integer or 1e30 not in RANGES[option],
        }
        assert {value: is_refused(option, value, capsys) for value in expected} == expected, option


def test_a_number_out_of_range_ends_with_status_2_and_the_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for args, message in (
        ("--batch-size 1", "expected at least 2 "),
        ("--learning-rate -1", "expected at least 0\n"),
        ("--crop-area 0.9 0.1", "expected the smaller number first"),
        ("--crop-area 0.1 2", "expected above 0 and at most 1, not 2"),
    ):
        assert main(["jcl/smoke", *PLACES, *args.split()]) == 2
        assert f"error: {args}: {message}" in capsys.readouterr().err


def test_zero_is_accepted_only_where_it_means_something() -> None:
    parse("moco/smoke", [*PLACES, "--consistency-temperature", "0"])  # not logged
    with pytest.raises(OptionError, match="--beta 0: expected above 0"):
        parse("lorac/smoke", [*PLACES, "--beta", "0"])


@pytest.mark.parametrize(
    ("recipe", "options", "refused"),
    [
        ("jcl/smoke", "--milestones 0.6 0.8", "--schedule cosine"),
        ("jcl/smoke", "--milestones 0.6 0.8 --schedule step", ""),
        ("jcl/smoke", "--trust-coefficient 0.02", "--optimizer sgd"),
        ("moco/in1k-r50-v1", "--schedule cosine", ""),  # its milestones are the recipe's
        ("simaffinity/smoke", "--groups 2", "--variant affinity"),
        ("simaffinity/smoke", "--groups 2 --variant whitening", ""),
        ("simtrace/smoke", "--sym-on affinity", "--variant trace"),
        ("simwhitening/smoke", "--ce-both-directions", ""),
        ("zero_cl/smoke", "--ridge 0.1", ""),
        ("moco_m/smoke", "--beta 1", "--prior none"),
        ("moco_m/smoke", "--beta 1 --prior laplace", ""),
        ("lorac/smoke", "--gaussian-variance 1", "--prior laplace"),
        ("lorac/in100-r18-gaussian", "--prior-from 0.2", ""),
        ("simaffinity/smoke", "--momentum 0.5", "--no-momentum-encoder"),
        ("simaffinity/smoke", "--momentum 0.5 --momentum-encoder", ""),
        ("simaffinity/smoke", "--predictor-dim 3", "--no-predictor"),
        ("simaffinity/smoke", "--predictor-dim 3 --predictor", ""),
        ("swav/in1k-r50", "--queue-from 0.5", "--queue-size 0"),
        ("swav/in1k-r50", "--queue-from 0.5 --queue-size 3840", ""),
        ("swav/in1k-r50", f"--queue-from 0.5 --queue-size {2**27}", ""),
        ("jcl/smoke", "--epochs 3 --steps 10", "--steps 10"),
        ("simclr/in1k-r50", "--epochs 300 --steps 10", ""),  # the warm-up is a fraction of them
    ],
)
def test_an_option_that_changes_nothing_is_refused(recipe: str, options: str, refused: str) -> None:
    if not refused:
        parse(recipe, [*PLACES, *options.split()])
        return
    with pytest.raises(OptionError, match=f"{options.split()[0]} has no effect with {refused}"):
        parse(recipe, [*PLACES, *options.split()])
