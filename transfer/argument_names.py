"""Name arguments instead of command-line options in errors of the Python API."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pretrain.running.errors import ArgumentError, SuiteError

ARGUMENTS = {
    "checkpoint-key": "branch",
    "input-px": "size_px",
    "input-mean": "mean",
    "input-std": "std",
    **{name: name for name in ("name", "pool", "results", "runs", "schedule", "tolerate")},
}
"""Option -> argument of the functions of `transfer`.

Other options are parts of commands.
"""


@contextmanager
def argument_names() -> Iterator[None]:
    """Rewrite error messages in the block or decorated function."""
    try:
        yield
    except SuiteError as error:
        error.args = (with_argument_names(str(error)),)
        raise
    except ValueError as error:
        raise ArgumentError(with_argument_names(str(error))) from error


def with_argument_names(message: str) -> str:
    """Replace options by arguments, such as --pool cls by pool='cls'."""
    source = r"--encoder ([\w./-]+(?::[\w./-]*\w)?)"
    message = re.sub(source, r"Encoder.from_file(..., encoder='\1')", message)
    message = message.replace("--encoder", "`encoder` of Encoder.from_file")
    message = re.sub(r"--pool '?([\w.+-]*\w)'?", r"pool='\1'", message)
    message = re.sub(r"--checkpoint-key '?([\w.+-]*\w)'?", r"branch='\1'", message)
    options = "|".join(ARGUMENTS)
    return re.sub(rf"--({options})(?![\w-])", lambda option: f"`{ARGUMENTS[option[1]]}`", message)
