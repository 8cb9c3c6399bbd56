"""Command lines: unknown options and numbers out of range are named, a closed pipe ends it."""

import io
import math
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

import tyro

Request = TypeVar("Request")
Main = Callable[[list[str]], int]


def parse(request: Callable[..., Request], words: Sequence[str], **settings: Any) -> Request:
    """Return the request that words describe, as tyro reads it; exit with 2 if they are wrong."""
    if {"-h", "--help"}.intersection(words):
        end_with_the_pipe()
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found: Request = tyro.cli(request, args=list(words), **settings)
            return found
    except SystemExit as end:
        if end.code == 2:
            known = _options(request, settings)
            told = (_sentence(word, known) for word in words if word.startswith("--"))
            print(next(filter(None, told), said.getvalue().rstrip()), file=sys.stderr)
        raise


def one_line_errors(
    *refused: type[Exception], failed: tuple[type[Exception], ...] = (OSError,)
) -> Callable[[Main], Main]:
    """Let a command end with one line and 2 for wrong requests, with 1 for errors of a run."""

    def decorate(main: Main) -> Main:
        @wraps(main)
        def told(words: list[str]) -> int:
            try:
                return main(words)
            except refused as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            except failed as error:
                print(f"failed: {error}", file=sys.stderr)
                return 1

        return told

    return decorate


def _options(request: Any, settings: dict[str, Any]) -> set[str]:
    """Return the names of all options, from the help."""
    said = io.StringIO()
    with redirect_stdout(said), suppress(SystemExit):
        tyro.cli(request, args=["--help"], **settings)
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said.getvalue()))


def _sentence(word: str, known: set[str]) -> str:
    """Return a sentence on a word that is no option; empty for an option."""
    option = word.partition("=")[0].replace("_", "-")
    if option in known:
        return ""
    near = get_close_matches(option, known, n=1, cutoff=0.5)
    asked = f"; did you mean {near[0]}?" if near else ";"
    return f"error: no option {option}{asked} --help shows all"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the three known names that resemble a name most, such as "a, b or c", or fewer.

    Names that begin with it come first.
    """
    asked, names = name.lower(), list(known)
    close = get_close_matches(asked, names, n=max(1, len(names)), cutoff=0)
    close.sort(key=lambda other: not other.startswith(asked))
    *others, last = close[:3] or [""]
    return f"{', '.join(others)} or {last}" if others else last


def end_with_the_pipe() -> None:
    """Let a command that only prints end in silence when its reader, such as head, has ended."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


class OptionError(ValueError):
    """An option outside of its range."""


@dataclass(frozen=True)
class Range:
    """Range of a number."""

    least: float = -math.inf
    most: float = math.inf
    open_below: bool = False
    """True if the least value is excluded."""
    open_above: bool = False
    """True if the largest value is excluded."""
    or_zero: bool = False
    """True if 0 is allowed as well, and stands for a default."""

    def __contains__(self, value: float) -> bool:
        """Return whether a value is in the range; nan and infinity never are."""
        if self.or_zero and value == 0:
            return True
        above = value > self.least if self.open_below else value >= self.least
        below = value < self.most if self.open_above else value <= self.most
        return above and below and abs(value) != math.inf

    def __str__(self) -> str:
        """Return words such as "0, or at least 32 and at most 8192"."""
        lower = f"{'above' if self.open_below else 'at least'} {self.least:.10g}"
        upper = f"{'below' if self.open_above else 'at most'} {self.most:.10g}"
        words = [lower] * (self.least > -math.inf) + [upper] * (self.most < math.inf)
        return f"{'0, or ' * self.or_zero}{' and '.join(words) or 'a finite number'}"


def check_ranges(options: object, ranges: Mapping[str, Range]) -> None:
    """Raise an OptionError for the first number out of range, also in nested dataclasses.

    A number of a method without a range, such as a user's own, must be finite.
    """
    for name, values in numbers(options):
        require_in_range(f"--{name.replace('_', '-')}", values, ranges.get(name, Range()))


def require_in_range(option: str, values: Sequence[float], range_: Range) -> None:
    """Raise an OptionError that names the option if one of its numbers is out of range."""
    words = [str(value).removesuffix(".0") for value in values]
    for value, word in zip(values, words, strict=True):
        if value not in range_:
            found = f", of which {word} is none" if len(words) > 1 else ""
            raise OptionError(f"{option} {' '.join(words)}: expected {range_}{found}")


def numbers(options: object) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the name and the numbers of each numeric field of a dataclass and those in it."""
    for spec in fields(options):  # type: ignore[arg-type]
        value = getattr(options, spec.name)
        if is_dataclass(value):
            yield from numbers(value)
            continue
        values = value if isinstance(value, tuple) else (value,)
        found = tuple(
            one for one in values if isinstance(one, int | float) and not isinstance(one, bool)
        )
        if found:
            yield spec.name, found
