"""The message on a step at the end of a run that failed: tables, figures, summary or report."""

import sys
import traceback

from pretrain.running.errors import SuiteError


def explain_failed_step(outcome: str, error: Exception, command: str) -> None:
    """Print in one line what is missing and why, that the records are safe, and what to run.

    The traceback of an error that no check foresees follows, since it is a fault of the suite.
    """
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
