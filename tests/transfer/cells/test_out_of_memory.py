"""An error of memory that ran out names the options of the task that need less."""

from pathlib import Path

import pytest
import torch

from pretrain.running.processes import assume_gpus
from transfer.backbone import Backbone
from transfer.cells.execution import evaluate, memory_advice
from transfer.cells.request import Cell, CellSettings
from transfer.finetuning.options import TrainingOptions

NONE = "no option of this task needs less; end what else uses this memory"
BFLOAT16 = "--precision bfloat16 (now float32)"


def test_the_options_of_the_task_are_named_with_numbers(
    small_backbone: Backbone, subtests: pytest.Subtests
) -> None:
    for key, gpus, options, expected in [
        ("coco_det", 8, {}, ["--images-per-gpu 1 (now 2)", "--batch-size 8 (now 16)", BFLOAT16]),
        ("voc12_seg_fcn", 1, {"images_per_gpu": 4}, ["--images-per-gpu 2 (now 4)", BFLOAT16]),
        ("coco_det", 8, {"batch_size": 8, "precision": "bfloat16"}, []),
        ("in1k_semi_1pct@lorac", 1, {"rates_at_once": 4}, [BFLOAT16, "--rates-at-once 1 (now 4)"]),
        ("cifar10_knn", 0, {}, ["--features-in bfloat16 (now float32)"]),
        ("cifar10_knn", 1, {}, []),
    ]:
        with subtests.test(key=key, gpus=gpus, options=options, expected=expected):
            training = TrainingOptions(**options)  # type: ignore[arg-type]
            settings = CellSettings(data=Path(), results=Path(), runs=Path(), training=training)
            with assume_gpus(gpus):
                said = memory_advice(
                    Cell(key=key, backbone=small_backbone, seed=0, settings=settings)
                )
            assert said == (f"these options need less: {', '.join(expected)}" if expected else NONE)


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
        RuntimeError, match=r"llocate.*; these options need less: --features-in"
    ) as error:
        evaluate(cell)
    assert "\n" not in str(error.value)
