"""The range of every numeric option of the commands that run cells."""

from collections.abc import Mapping

from transfer.running.option_ranges import COUNT, RANGES, Range

OPTION_RANGES: Mapping[str, Range] = {
    **RANGES,
    "cell_gpus": Range(0, 1024),
    "cpus": Range(0, 4096),
    "hours": Range(0, 1e5),
    "memory_gb": Range(0, 1e6),
    "parallel": COUNT,
}
"""Ranges by the name of the field; a name means the same in all commands."""
