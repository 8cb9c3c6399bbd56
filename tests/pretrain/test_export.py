import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pretrain.__main__ import main
from pretrain.data.views import ViewRecipe
from pretrain.export import export
from pretrain.parts.resnet import build_resnet
from pretrain.recipes import RECIPES

MADE_BY: dict[str, object] = {"method": "jcl", "recipe": "jcl/smoke", "epochs": 2.0}


def export_network(path: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    backbone: nn.Module = build_resnet("resnet18", "imagenet")[0]
    backbone = backbone.to(memory_format=torch.channels_last).bfloat16()
    recipe = replace(RECIPES["jcl/smoke"], views=ViewRecipe(size_px=64))
    export(path, backbone, "resnet18", recipe, MADE_BY)
    return backbone.state_dict()


def test_backbone_file_is_plain_float32(tmp_path: Path) -> None:
    expected = export_network(tmp_path / "backbone.pt")
    content: dict[str, Any] = torch.load(tmp_path / "backbone.pt", weights_only=True)
    state_dict = content.pop("state_dict")
    assert state_dict.keys() == expected.keys()
    for key, value in state_dict.items():
        assert value.dtype == (torch.float32 if value.is_floating_point() else torch.int64)
        assert torch.equal(value, expected[key].to(value.dtype))
    assert content == {
        "format": "ssl-backbone/1",
        "arch": "resnet18",
        "stem": "imagenet",
        "input": {
            "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225],
            "size": 64,
            "channels": "RGB",
        },
        "made_by": MADE_BY,
    }


@pytest.mark.slow
def test_the_page_of_the_backbone_file_names_every_key(image_folder: Path, tmp_path: Path) -> None:
    args = f"simclr/smoke --data {image_folder} --out {tmp_path / 'run'} --steps 1 --batch-size 4"
    assert main([*args.split(), "--size-px", "16", "--device", "cpu"]) == 0
    page = Path(__file__).parents[2] / "docs" / "reference" / "backbone_file.md"
    named = set(re.findall(r"`(\w+)`", page.read_text()))
    content = torch.load(tmp_path / "run" / "encoder.pt", weights_only=True)
    assert {*content, *content["made_by"], *content["input"]} <= named
