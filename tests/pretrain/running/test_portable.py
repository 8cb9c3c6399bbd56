"""Errors survive the way to another process."""

import pickle

import pytest

from pretrain.running.processes import pickled_error


class LineError(ValueError):
    """An error whose constructor does not take its message."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}:{line} is wrong")
        self.file, self.line = file, line


class OddError(RuntimeError):
    """It cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.made = lambda: None


def test_an_error_keeps_type_message_and_attributes(subtests: pytest.Subtests) -> None:
    for error in [
        LineError("a.txt", 3),
        OSError(28, "No space left on device", "/data/x.jpg"),
        KeyError("label"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ]:
        with subtests.test(error=error):
            copy = pickle.loads(pickled_error(error))
            assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)
            assert vars(copy) == vars(error)
            assert getattr(copy, "filename", None) == getattr(error, "filename", None)


def test_an_error_that_cannot_be_pickled_keeps_its_words_and_notes() -> None:
    error = OddError()
    error.add_note("while reading x.jpg")
    copy = pickle.loads(pickled_error(error))
    assert (type(copy), str(copy)) == (RuntimeError, "OddError: odd")
    assert copy.__notes__ == ["while reading x.jpg"]
