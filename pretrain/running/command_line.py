"""Command lines: an unknown option is named in a sentence, and a closed pipe ends a command."""

import io
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from typing import Any, TypeVar

import tyro

Request = TypeVar("Request")


def parse(request: Callable[..., Request], words: Sequence[str], **settings: Any) -> Request:
    """Return the request that words describe, as tyro reads it; exit with 2 if they are wrong."""
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


def end_with_the_pipe() -> None:
    """Let a command that only prints end in silence when its reader, such as head, has ended."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
