"""The published facts of the data sets: `facts.yaml`, joined with the functions that read them."""

from functools import cache
from pathlib import Path
from typing import Any

from transfer.datasets.info import DatasetInfo, split_counts
from transfer.datasets.source import Archive, Part, Source

FILE = Path(__file__).with_name("facts.yaml")


@cache
def _facts() -> dict[str, dict[str, dict[str, Any]]]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # five times as fast where it is there
    content: dict[str, dict[str, dict[str, Any]]] = yaml.load(FILE.read_text(), Loader=loader)
    return content


def source(key: str, **functions: Any) -> Source:
    """Return the source of this key; `functions` are the fields that are code, such as `arrange`.

    TypeError names a field that is missing, or that no source has.
    """
    facts = _facts()["sources"][key]
    lists = {
        "archives": tuple(map(_archive, facts["archives"])),
        "variants": tuple(tuple(map(_archive, variant)) for variant in facts.get("variants", ())),
        "parts": tuple(map(_part, facts["parts"])),
        "checked_as": tuple(facts.get("checked_as", ())),
    }
    return Source(key=key, **(facts | lists), **functions)


def info(key: str, **functions: Any) -> DatasetInfo:
    """Return the description of this key's set; `functions` are the fields that are code.

    These are `read` and `small`, often `sources`. TypeError names one that is missing or unknown.
    """
    facts = _facts()["datasets"][key]
    counts = facts["counts"]
    if "train" in counts:
        counts = split_counts(**counts)
    return DatasetInfo(**(facts | {"counts": counts}), **functions)


def _archive(facts: dict[str, Any]) -> Archive:
    lists: dict[str, Any] = {
        name: tuple(facts[name]) for name in ("urls", "other_names") if name in facts
    }
    return Archive(**(facts | lists))


def _part(facts: str | dict[str, Any]) -> Part:
    if isinstance(facts, str):
        return Part(path=facts)
    return Part(**(facts | {"elsewhere": tuple(facts.get("elsewhere", ()))}))
