"""An error of memory that ran out names the options of the task that need less."""

import pytest
import torch

from transfer.backbone import Backbone
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings


@pytest.mark.parametrize("of_gpu", [True, False])
def test_a_cell_without_memory_fails_with_reason_and_advice(
    small_backbone: Backbone, settings: CellSettings, monkeypatch: pytest.MonkeyPatch, of_gpu: bool
) -> None:
    def fails(*_: object) -> None:
        if of_gpu:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nframes")
        torch.empty(2**52, dtype=torch.uint8)

    cell = Cell(key="cars_knn", backbone=small_backbone, seed=0, settings=settings)
    monkeypatch.setattr(type(cell.task), "run", fails)
    with pytest.raises(
        RuntimeError, match=r"llocate.*; these may need less: --features-in"
    ) as error:
        evaluate(cell)
    assert "\n" not in str(error.value)
