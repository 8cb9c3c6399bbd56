"""The detectron2 files that MoCo's own converter writes load; their heads are distinguished."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.transfer.convert.naming import (
    Weights,
    another,
    below,
    detectron2_names,
    linear,
    refuse,
)
from transfer.backbone import inspect_file, load_backbone

GetWeights = Callable[..., Weights]


def moco_for_detectron2(checkpoint: Weights) -> dict[str, Any]:
    """Convert by the rules of MoCo's own script, which keeps the head and the step counters."""
    renamed = {}
    for name, tensor in checkpoint.items():
        if not name.startswith("module.encoder_q."):
            continue
        name = name.replace("module.encoder_q.", "")
        if "layer" not in name:
            name = "stem." + name
        for i in (1, 2, 3, 4):
            name = name.replace(f"layer{i}", f"res{i + 1}")
        for i in (1, 2, 3):
            name = name.replace(f"bn{i}", f"conv{i}.norm")
        name = name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
        renamed[name] = tensor.numpy()
    return {"model": renamed, "__author__": "MOCO", "matching_heuristics": True}


MOCO_HEADS = {
    "v1": linear("fc", 128, 512),
    "v2": {**linear("fc.0", 512, 512), **linear("fc.2", 128, 512)},
}


@pytest.mark.parametrize("version", MOCO_HEADS)
def test_mocos_own_file_for_detectron2_is_read_with_its_head(
    version: str, weights: GetWeights, tmp_path: Path
) -> None:
    expected, head = weights(), MOCO_HEADS[version]
    content = moco_for_detectron2(
        {
            **below("module.encoder_q.", {**expected, **head}),
            **below("module.encoder_k.", another(expected)),
        }
    )
    (tmp_path / "moco.pkl").write_bytes(pickle.dumps(content))
    backbone = load_backbone(tmp_path / "moco.pkl")
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)
    kinds = {group.kind: group.num_tensors for group in inspect_file(tmp_path / "moco.pkl").account}
    assert kinds == {"backbone": len(expected), "head": len(head)}


def test_a_tensor_in_the_stem_that_is_no_head_is_refused(
    weights: GetWeights, tmp_path: Path
) -> None:
    content = {**detectron2_names(weights()), "stem.conv2.weight": torch.ones(4)}
    refuse(content, tmp_path / "file", "stem.conv2.weight")
