"""The recipe that a user declares for a file that does not say how it was made.

The declaration stands in the records beside the description of the backbone. It changes no result.
"""

import re
from dataclasses import replace
from pathlib import Path

from transfer.backbone import Backbone
from transfer.record import FAILED, RecordError, read_record, write_json_record

RECIPE_NAME = re.compile(r"[a-z0-9_]+/[A-Za-z0-9_.+-]+")


def with_declared_recipe(backbone: Backbone, recipe: str) -> Backbone:
    """Return the backbone with its declared recipe; ValueError if there is nothing to declare."""
    if not recipe:
        return backbone
    if not RECIPE_NAME.fullmatch(recipe):
        raise ValueError(f"--as {recipe}: expected a recipe such as moco/in1k-r50-v2")
    if backbone.made_by:
        said = backbone.made_by.get("recipe") or backbone.made_by.get("method") or "its training"
        raise ValueError(
            f"--as {recipe}: {backbone.name} says itself how it was made ({said}); leave out --as"
        )
    return replace(backbone, declared=recipe)


def declare_in_records(records: Path, backbone: Backbone) -> int:
    """Write the declared recipe into the backbone's records; return how many were changed.

    records: folder of all records. Records of other weights, and what is no record, stay as they
    are. Nothing happens without a declaration.
    """
    changed = 0
    for path in sorted((records / backbone.name).rglob("*.json")) if backbone.declared else ():
        if path.name.endswith(FAILED):
            continue
        try:
            record = read_record(path)
        except (RecordError, FileNotFoundError):
            continue
        same_weights = record.backbone.get("sha256") == backbone.sha256
        if same_weights and record.declared != backbone.declared:
            write_json_record(path, replace(record, declared=backbone.declared))
            changed += 1
    return changed
