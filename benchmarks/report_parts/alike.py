"""Results of one task that may stand on one line or in one mean, with words that tell them apart.

They are those of one block and column of the tables: protocol, schedule, data and conditions agree.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from benchmarks.pages.blocks import backbone_key, sort_into_blocks
from benchmarks.pages.records import Model, Result


@dataclass(frozen=True, kw_only=True)
class Alike:
    """Results of one backbone, or of one snapshot, that differ by their seeds only."""

    kind: str
    """Words for schedule, data and protocol; empty if all results of the task agree in them."""
    model: Model
    """The backbone, with its conditions if other results of it have others."""
    runs: tuple[Result, ...]
    """One result of each seed, the newest, sorted by seed."""


def alike(
    results: Iterable[Result], group_key: Callable[[Model], Hashable] = backbone_key
) -> list[Alike]:
    """Return the results of a task in groups that may share a mean, sorted by kind and backbone.

    group_key: key of a backbone. Results of all backbones with one key are kept apart by their
    conditions as if they were those of one backbone.
    """
    blocks = sort_into_blocks(results, group_key=group_key)
    several_blocks = len(blocks) > 1
    several_protocols = len({column for block in blocks for column in block.columns}) > 1
    groups = []
    for block in blocks:
        for (model, (_, protocol)), done in sorted(block.done.items()):
            words = [block.heading[0].lower() + block.heading[1:]] * several_blocks
            words += [f"protocol {protocol}"] * several_protocols
            by_seed = {r.seed: r for r in sorted(done, key=lambda r: (r.seed, r.finished))}
            groups.append(Alike(kind=", ".join(words), model=model, runs=(*by_seed.values(),)))
    return groups
