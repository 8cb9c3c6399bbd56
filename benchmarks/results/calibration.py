"""Line of every table on the public checkpoint that this installation reproduced."""

import json
from pathlib import Path
from typing import Any

from benchmarks.results.records import grouped

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


def _line(content: dict[str, Any]) -> str:
    numbers: list[dict[str, Any]] = content["numbers"]
    what = f"{content['reference']} ({content['file']})"
    reasons: dict[str, str] = content.get("not_counted", {})
    left_out = "; ".join(f"{key} does not count: {why}" for key, why in reasons.items())
    if not numbers:
        why = f" that counts ({left_out})" if left_out else ""
        return f"Not calibrated: no number of {what} was measured{why}."
    reproduced = all(number["within"] for number in numbers)
    start = "Calibrated: this installation reproduced"
    if not reproduced:
        start = "Not calibrated: this installation did not reproduce"
    days = " and ".join(sorted({n.get("finished", content["finished"])[:10] for n in numbers}))
    by_task = grouped(((number["key"], number["source"]), _words(number)) for number in numbers)
    parts = [f"{key} {', '.join(words)} ({source})" for (key, source), words in by_task.items()]
    compared = "; ".join([*parts, *filter(None, [left_out])])
    return f"{start} {what} on {days}, {content['machine']}: {compared}."


def _words(number: dict[str, Any]) -> str:
    against = f"{number['metric']} {number['ours']:.2f} against {number['published']}"
    return f"{against}, {'not ' * (not number['within'])}within {number['tolerance']}"
