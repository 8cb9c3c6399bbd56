"""Files of MATLAB, which older sets keep their labels in."""

import zlib
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from transfer.datasets.expected import DataError


def read_mat(
    file: Path | BinaryIO, *variables: str, squeeze_me: bool = False
) -> tuple[NDArray[Any], ...]:
    """Return variables of a file, without axes of length 1 if asked for; DataError names the file.

    file: a path, or content in memory.
    """
    import scipy.io
    from scipy.io.matlab import MatReadError

    try:
        content = scipy.io.loadmat(file, variable_names=variables, squeeze_me=squeeze_me)
        return tuple(content[name] for name in variables)
    except (
        *(MatReadError, zlib.error, NotImplementedError, OSError, EOFError),
        *(LookupError, ValueError, TypeError, OverflowError, MemoryError),
    ) as error:  # what scipy raises on other and on damaged files
        name = file if isinstance(file, Path) else "a .mat file"
        raise DataError(
            f"{name}: it cannot be read ({type(error).__name__}: {error}); get it again"
        ) from error
