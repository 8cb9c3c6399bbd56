"""Lines of a record on its checkpoint: identity, origin, proof of its conversion; its machine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transfer.convert.architectures import network_words
from transfer.record import Record

Line = tuple[str, str]
"""Label and text."""
PROVEN = "proven"
"""Label of what was proven of a checkpoint."""


def checkpoint_lines(record: Record) -> Iterator[Line]:
    """Yield identity and origin of the checkpoint, and what was proven of it."""
    backbone = record.backbone
    yield "name", backbone["name"]
    size = backbone.get("num_parameters")
    words = network_words(backbone["arch"], backbone["stem"])
    yield "network", words + (f", {size / 1e6:.1f} million parameters" if size else "")
    yield "tensors", f"sha256 {backbone['sha256']}"
    if backbone.get("file_sha256"):
        yield "file", f"sha256 {backbone['file_sha256']}"
    yield "recognized as", backbone.get("source", "")
    made_by = backbone.get("made_by") or {}
    for name in ("recipe", "epochs", "data", "seed", "precision", "commit"):
        if made_by.get(name) not in (None, ""):
            yield f"trained: {name}", value_words(made_by[name])
    if not made_by:
        yield "trained", "the file does not say how"
    if record.declared:
        yield "declared recipe", f"{record.declared}; nothing here has checked it"
    if proof := maps_proof([record]):
        yield PROVEN, proof


def maps_proof(records: Sequence[Record]) -> str:
    """Return how far the converted network's feature maps were from torchvision's.

    Empty if no task of the records has compared them.
    """
    found = [
        (max(maps.values()), record.task)
        for record in records
        if (maps := record.details.get("largest_difference_of_maps"))
    ]
    if not found:
        return ""
    tasks = ", ".join(sorted({task for _, task in found}))
    return (
        f"in {tasks} the network's feature maps differ from torchvision's with the same weights by "
        f"at most {max(found)[0]:g}"
    )


def machine(record: Record) -> str:
    """Return the machine of a record in words."""
    hardware = dict(record.hardware)
    accelerator = hardware.pop("accelerator", "none")
    words = [] if accelerator == "none" else [accelerator]
    words += [f"{name} {value}" for name, value in hardware.items()]
    return ", ".join(words) or "unknown"


def value_words(value: Any) -> str:
    """Return a value in words; numbers without superfluous digits."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_words(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(value_words, value)) or "none"
    return str(value)
