"""An evaluation from Python does not depend on the process state."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import transfer.cells.execution
from transfer import evaluate
from transfer.encoders.encoder import Encoder


def test_tasks_that_train_do_so_also_where_gradients_are_off(
    small_backbone: Encoder, small_data: Path, tmp_path: Path
) -> None:
    actual = []
    for number, mode in enumerate((torch.enable_grad, torch.inference_mode)):
        with mode():
            result = evaluate(
                small_backbone,
                "cifar10_semi_10pct",
                data=small_data,
                schedule="smoke",
                runs=tmp_path / str(number),
            )
        actual.append(result.metrics)
    assert actual[0] == actual[1]


def test_records_of_other_weights_are_neither_replaced_nor_computed(
    small_backbone: Encoder, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, runs = tmp_path / "results", tmp_path / "runs"
    smoke = partial(evaluate, data=small_data, schedule="smoke", results=results, runs=runs)
    first = smoke(small_backbone, "cifar10_knn")
    monkeypatch.setattr(transfer.cells.execution, "_compute", Mock(side_effect=AssertionError))
    second = replace(small_backbone, sha256="0" * 64)
    for task in ("cifar10_knn", "in100_knn"):
        with pytest.raises(ValueError, match="records of other weights"):
            smoke(second, task)
    assert smoke(small_backbone, "cifar10_knn") == first
