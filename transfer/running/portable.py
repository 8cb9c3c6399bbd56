"""Errors that cross the border between processes: same type, same message, same attributes."""

import pickle
from typing import Any


class _Rebuilt:
    """A pickled error whose constructor asks for something else than a message."""

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
    """Return what pickle.loads turns into the same error; what cannot be, into a RuntimeError.

    The fallback names the type and tells the message. Notes stay, causes and tracebacks do not.
    """
    for form in (error, _Rebuilt(error)):
        try:
            content = pickle.dumps(form)
            copy = pickle.loads(content)
        except Exception:  # what a library's error does while it is copied is its own affair
            continue
        if type(copy) is type(error) and str(copy) == str(error):
            return content
    words = RuntimeError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        words.add_note(note)
    return pickle.dumps(words)
