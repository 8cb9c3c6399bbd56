"""The recipe that a user declares for a file that does not say how it was made.

The declaration stands in the records beside the description of the backbone. It changes no result.
"""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from transfer.backbone import Backbone
from transfer.record import Record, RecordError, read_record, write_json_record

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


def settle_declaration(records: Path, backbone: Backbone, *, given: bool) -> tuple[Backbone, str]:
    """Make declaration and records agree; return the backbone, and a line on what to know about it.

    records: folder of all records; those of other weights, and what is no record, stay as they are.
    given: the command line has --as for this backbone. Its recipe replaces that of an earlier run,
    and an empty one withdraws it; without --as the recipe of the newest record stays.
    """
    own = _records_of(records, backbone)
    newest = max(own.values(), key=lambda record: record.finished, default=None)
    earlier = newest.declared if newest and RECIPE_NAME.fullmatch(newest.declared) else ""
    if not given:
        if backbone.made_by or backbone.declared or not earlier:
            return backbone, ""
        return replace(backbone, declared=earlier), (
            f"{backbone.name}: declared as {earlier} by an earlier run; --as '' withdraws it, "
            "--as RECIPE replaces it"
        )
    changed = {path: one for path, one in own.items() if one.declared != backbone.declared}
    for path, record in changed.items():
        write_json_record(path, replace(record, declared=backbone.declared))
    if not changed or not earlier:
        return backbone, ""
    instead = f"replaced by {backbone.declared}" if backbone.declared else "withdrawn"
    return backbone, f"{backbone.name}: --as {earlier} is {instead} in {len(changed)} records"


def _records_of(records: Path, backbone: Backbone) -> dict[Path, Record]:
    """Return the records of these weights by file."""
    found = {}
    for path in sorted((records / backbone.name).rglob("*.json")):
        with suppress(RecordError, FileNotFoundError):  # failures among them
            found[path] = read_record(path)
    return {path: one for path, one in found.items() if one.backbone["sha256"] == backbone.sha256}
