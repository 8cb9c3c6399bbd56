"""Cells of a plan, for all tests of what becomes of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.planning.plan import PlannedCell
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.cells.state import State
from transfer.encoders.encoder import Encoder

Rows = Callable[..., list[PlannedCell]]


def stored_state(backbone: str) -> State:
    content = {"backbone": backbone, "seed": 0, "log": "", "request": {"task": "task"}}
    return State(path=Path("x.state.json"), content=content)


@pytest.fixture
def rows(small_backbone: Encoder, settings: Settings) -> Rows:
    """Return planned evaluations of tasks and backbones, with equal hours."""

    def make(
        *keys: str,
        names: tuple[str, ...] = (),
        seeds: int = 1,
        hours: float = 1.0,
        schedule: str = "smoke",
    ) -> list[PlannedCell]:
        named = [replace(small_backbone, name=name, sha256=name) for name in names]
        ours = replace(settings, schedule=schedule)
        cells = [
            Cell.with_backbone(task=key, backbone=backbone, seed=seed, settings=ours)
            for backbone in named or [small_backbone]
            for key in keys
            for seed in range(seeds)
        ]
        return [PlannedCell(cell, "run", (), hours) for cell in cells]

    return make
