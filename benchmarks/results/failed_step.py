"""Message on a failed final step: tables, figures, summary or report."""

import sys
import traceback

from pretrain.running.errors import SuiteError


def explain_failed_step(outcome: str, error: Exception, command: str) -> None:
    """Print the missing output, the reason, and the command to repeat.

    The records are not affected. Unexpected errors are bugs, so their traceback is printed as well.
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
