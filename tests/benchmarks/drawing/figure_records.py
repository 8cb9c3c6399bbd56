"""Records of runs that figures show, written by hand."""

from pathlib import Path
from typing import Any

from tests.synthetic_records import record

IN100 = "train (126689 images, fingerprint f)"


def origin(recipe: str, **changes: Any) -> dict[str, Any]:
    """Return the origin of a backbone; settings by dotted name, with _ for the first dot."""
    settings = {"method": recipe.partition("/")[0], "learning_rate": 0.1}
    settings |= changes.pop("settings", {})
    return {
        "method": recipe.partition("/")[0],
        "recipe": recipe,
        "epochs": 100.0,
        "data": IN100,
        "seed": 0,
        "precision": "bfloat16",
        "settings": settings,
        "changed": {},
    } | changes


def point(
    results: Path, recipe: str, score: float, settings: dict[str, Any], **changes: Any
) -> None:
    """Write the record of one backbone of a sweep."""
    name = recipe.replace("/", "-") + changes.pop("suffix", "")
    made_by = origin(recipe, settings=settings) | changes.pop("made_by", {})
    cell = {
        "backbone": name,
        "sha256": name.ljust(64, "0")[:64],
        "arch": "resnet18",
        "made_by": made_by,
        "task": "in100_linear",
        "protocol": "jcl-2020/1",
        "engine": "torch",
    }
    record(results / "records", score, **(cell | changes))


def jcl_keys(results: Path, scores: dict[int, float], **changes: Any) -> None:
    """Write the records of JCL's Figure 2(a)."""
    for keys, score in scores.items():
        recipe = "jcl/in100-r18" + ("" if keys == 5 else f"-keys{keys}")
        point(results, recipe, score, {"config.num_keys": keys}, **changes)
