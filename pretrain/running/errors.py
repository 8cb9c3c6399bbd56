"""The base of the errors that a caller of the Python API may want to catch."""


class SuiteError(Exception):
    """Error of the suite with a message for people: what was found, expected, and what to do."""


class NotFiniteError(ArithmeticError):
    """A loss or a score is infinite or not a number, so no result is written."""
