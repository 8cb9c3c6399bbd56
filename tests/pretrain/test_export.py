from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn
from torchvision.models import resnet18

from pretrain.data.views import ViewRecipe
from pretrain.export import export
from pretrain.parts.resnet import build_resnet

MADE_BY: dict[str, object] = {"method": "jcl", "recipe": "jcl/smoke", "epochs": 2.0}


def export_network(path: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    backbone: nn.Module = build_resnet("resnet18", "imagenet")[0]
    backbone = backbone.to(memory_format=torch.channels_last).bfloat16()
    views = ViewRecipe(size_px=64)
    export(path, backbone, arch="resnet18", stem="imagenet", views=views, made_by=MADE_BY)
    return backbone.state_dict()


def test_the_file_is_plain_and_holds_what_evaluation_reads(tmp_path: Path) -> None:
    export_network(tmp_path / "backbone.pt")
    content: dict[str, Any] = torch.load(tmp_path / "backbone.pt", weights_only=True)
    assert content.pop("state_dict").keys() == {
        name for name in resnet18().state_dict() if not name.startswith("fc.")
    }
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


@pytest.mark.parametrize("name", ["backbone.pt", "backbone.safetensors"])
def test_tensors_are_the_backbones_in_float32(tmp_path: Path, name: str) -> None:
    expected = export_network(tmp_path / name)
    if name.endswith(".pt"):
        found = torch.load(tmp_path / name, weights_only=True)["state_dict"]
    else:
        with safe_open(tmp_path / name, "pt") as file:
            found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    assert found.keys() == expected.keys()
    for key, value in found.items():
        assert value.dtype == (torch.float32 if value.is_floating_point() else torch.int64)
        assert torch.equal(value, expected[key].to(value.dtype))
