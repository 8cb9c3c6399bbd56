"""The error of a training that has diverged."""


class NotFiniteError(ArithmeticError):
    """A loss or a score is infinite or not a number, so no result is written."""
