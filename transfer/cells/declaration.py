"""The recipe that a user declares for a file that does not say how it was made.

The declaration stands in the records beside the description of the backbone. It changes no result.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from transfer.backbone import Backbone
from transfer.record import FAILED, Record, RecordError, read_record, write_json_record

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
    """Write the backbone's declared recipe into its records; return how many were changed.

    records: folder of all records. Without a recipe an earlier declaration is withdrawn. Records of
    other weights, and what is no record, stay as they are.
    """
    changed = 0
    for path, record in _records_of(records, backbone):
        if record.declared != backbone.declared:
            write_json_record(path, replace(record, declared=backbone.declared))
            changed += 1
    return changed


def with_kept_declaration(records: Path, backbone: Backbone) -> Backbone:
    """Return the backbone with the recipe that an earlier run declared for it, if one did.

    New records then say the same as those that are finished; of several recipes the newest
    record's counts.
    """
    if backbone.made_by or backbone.declared:
        return backbone
    of_records = [record for _, record in _records_of(records, backbone)]
    newest = max(of_records, key=lambda record: record.finished, default=None)
    recipe = "" if newest is None else newest.declared
    return replace(backbone, declared=recipe) if RECIPE_NAME.fullmatch(recipe) else backbone


def settle_declaration(records: Path, backbone: Backbone, *, given: bool) -> tuple[Backbone, str]:
    """Make declaration and records agree; return the backbone, and a line on what to know about it.

    given: the command line has --as for this backbone. Its recipe replaces an earlier one, and an
    empty one withdraws it; without --as an earlier one stays.
    """
    if given:
        earlier = with_kept_declaration(records, replace(backbone, declared="")).declared
        changed = declare_in_records(records, backbone)
        if not changed or not earlier:
            return backbone, ""
        instead = f"replaced by {backbone.declared}" if backbone.declared else "withdrawn"
        return backbone, f"{backbone.name}: --as {earlier} is {instead} in {changed} records"
    kept = with_kept_declaration(records, backbone)
    if kept.declared == backbone.declared:
        return backbone, ""
    return kept, (
        f"{backbone.name}: declared as {kept.declared} by an earlier run; --as '' withdraws it, "
        "--as RECIPE replaces it"
    )


def _records_of(records: Path, backbone: Backbone) -> Iterator[tuple[Path, Record]]:
    """Yield the records of these weights with their files."""
    for path in sorted((records / backbone.name).rglob("*.json")):
        if path.name.endswith(FAILED):
            continue
        try:
            record = read_record(path)
        except (RecordError, FileNotFoundError):
            continue
        if record.backbone.get("sha256") == backbone.sha256:
            yield path, record
