"""Line of every table on the public checkpoint that this installation reproduced."""

import json
from pathlib import Path
from typing import Any

FILE = "calibration.json"
"""File in the results folder, written by benchmarks/run_all.py --calibrate."""
FORMAT = "ssl-calibration/1"
NOT_CALIBRATED = (
    "Not calibrated: no public checkpoint was evaluated here and compared with its published "
    "numbers (`benchmarks/run_all.py --calibrate --ckpt FILE`)."
)


def calibration_line(results: Path) -> str:
    """Return the line for a folder of results."""
    try:
        content = json.loads((results / FILE).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}, expected {FORMAT!r}")
        return _line(content)
    except FileNotFoundError:
        return NOT_CALIBRATED
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return f"Not calibrated: {FILE} cannot be read ({reason})."


def with_line(page: str, line: str) -> str:
    """Return a page with a line below its title."""
    title, _, rest = page.partition("\n")
    return f"{title}\n\n{line}\n{rest}"


def _line(content: dict[str, Any]) -> str:
    numbers: list[dict[str, Any]] = content["numbers"]
    what = f"{content['reference']} ({content['file']})"
    if not numbers:
        return f"Not calibrated: no number of {what} was measured."
    reproduced = all(number["within"] for number in numbers)
    start = (
        "Calibrated: this installation reproduced"
        if reproduced
        else ("Not calibrated: this installation did not reproduce")
    )
    compared = "; ".join(
        f"{number['key']} {number['metric']} {number['ours']:.2f} against {number['published']}, "
        f"{'within' if number['within'] else 'not within'} {number['tolerance']}"
        for number in numbers
    )
    return f"{start} {what} on {content['finished'][:10]}, {content['machine']}: {compared}."
