"""An evaluation from Python does not depend on the state of the program that asks for it."""

from pathlib import Path

import torch

from transfer import evaluate
from transfer.backbone import Backbone


def test_tasks_that_train_do_so_also_where_gradients_are_off(
    small_backbone: Backbone, small_data: Path, tmp_path: Path
) -> None:
    found = []
    for number, mode in enumerate((torch.enable_grad, torch.inference_mode)):
        with mode():
            result = evaluate(
                small_backbone,
                "cifar10_semi_10pct",
                data=small_data,
                schedule="smoke",
                runs=tmp_path / str(number),
            )
        found.append(result.metrics)
    assert found[0] == found[1]
