"""Errors that are sent to another process with their type, message and attributes."""

import pickle
from typing import Any


class _Rebuilt:
    """A pickled error whose constructor takes other arguments than a message."""

    def __init__(self, error: Exception) -> None:
        self.parts = type(error), error.args, error.__dict__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self.parts


def _rebuild(kind: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def pickled_error(error: Exception) -> bytes:
    """Return bytes from which pickle.loads restores the same error.

    An error that cannot be pickled becomes a RuntimeError with its type and message. Notes are
    kept, causes and tracebacks are not.
    """
    for form in (error, _Rebuilt(error)):
        try:
            content = pickle.dumps(form)
            copy = pickle.loads(content)
        except Exception:  # an error class of a library may raise anything while it is copied
            continue
        if type(copy) is type(error) and str(copy) == str(error):
            return content
    words = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        words.add_note(note)
    return pickle.dumps(words)
