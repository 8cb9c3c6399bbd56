"""Final steps of a run: tables, figures, summary and report."""

import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from pretrain.running.errors import SuiteError

Result = TypeVar("Result")


def attempt(step: Callable[[], Result], outcome: str, command: str) -> Result | None:
    """Return the result of a final step, or None after a failure.

    A failure is printed in one line: what is missing (outcome), the reason, and the command to
    repeat. The records are not affected. Unexpected errors are bugs, so their traceback is printed
    as well.
    """
    try:
        return step()
    except Exception as error:  # even a bug must not hide the other results
        is_expected = isinstance(error, OSError | ImportError | SuiteError)
        reason = " ".join(str(error).split()).rstrip(".")
        if not is_expected:
            reason = ": ".join(filter(None, [type(error).__name__, reason]))
        print(
            f"{outcome}: {reason or type(error).__name__}; the records are safe; to try again, run "
            f"{command}",
            file=sys.stderr,
            flush=True,
        )
        if not is_expected:
            traceback.print_exception(error)
        return None
