"""Projectors in our encoder file and in MoCo's head."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.conftest import own_file
from tests.rounding import assert_equal_up_to_rounding
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, random_backbone, with_heads
from transfer.encoders.opening import load_backbone
from transfer.encoders.projector import load_projector, missing_projector_reason
from transfer.encoders.resnets import build_resnet


def two_layers() -> list[dict[str, Any]]:
    """Return a projector 512 -> 8 -> 4 with batch norm and plain output."""
    generator = torch.Generator().manual_seed(0)
    first, mean, scale, shift = (torch.randn(8, n, generator=generator) for n in (512, 1, 1, 1))
    norm = {"running_mean": mean[:, 0], "weight": scale[:, 0], "bias": shift[:, 0]}
    variance = torch.rand(8, generator=generator) + 0.5
    weight, bias = torch.randn(4, 8, generator=generator), torch.randn(4, generator=generator)
    return [
        {"kind": "linear", "weight": first},
        {"kind": "batch_norm", "eps": 1e-3, "running_var": variance, **norm},
        {"kind": "relu"},
        {"kind": "linear", "weight": weight, "bias": bias},
    ]


def encoder_file(backbone: Encoder, path: Path, projectors: object = None) -> Path:
    """An encoder file as the pre-training room writes it."""
    content = torch.load(own_file(backbone, {}, path), weights_only=True)
    if projectors is None:
        projectors = [{"features": [0, 512], "layers": two_layers()}]
    torch.save({**content, "format": "ssl-encoder/1", "projectors": projectors}, path)
    return path


def by_hand(features: Tensor) -> Tensor:
    first, norm, _, last = two_layers()
    hidden = features @ first["weight"].T
    scale = norm["weight"] / (norm["running_var"] + norm["eps"]).sqrt()
    hidden = ((hidden - norm["running_mean"]) * scale + norm["bias"]).clamp_min(0)
    rows: Tensor = hidden @ last["weight"].T + last["bias"]
    return rows


def test_the_encoder_file_beside_a_backbone_file_is_found(
    small_backbone: Encoder, tmp_path: Path
) -> None:
    encoder_file(small_backbone, tmp_path / "encoder.pt")
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert load_projector(backbone).source == "encoder.pt: 1 projector"


def test_cosines_of_several_heads_are_the_mean_of_the_heads_cosines(tmp_path: Path) -> None:
    backbone = random_backbone(arch="resnet18-heads2", stem="cifar", seed=0)
    heads = [{"features": [512 * h, 512 * h + 512], "layers": two_layers()} for h in range(2)]
    loaded = load_backbone(encoder_file(backbone, tmp_path / "encoder.pt", heads))
    features = torch.randn(3, 1024, generator=torch.Generator().manual_seed(1))
    result = load_projector(loaded).embeddings(features)
    each = [normalize(by_hand(part), dim=1) for part in features.split(512, dim=1)]
    mean = torch.stack([rows @ rows.T for rows in each]).mean(dim=0)
    assert_equal_up_to_rounding(result @ result.T, mean)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_mocos_head_is_read_from_its_checkpoint(version: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder: Any = build_resnet("resnet18", "imagenet")
    linear = nn.Linear(512, 16)
    head = linear if version == "v1" else nn.Sequential(nn.Linear(512, 512), nn.ReLU(), linear)
    encoder.fc = head
    names = {f"module.encoder_q.{name}": value for name, value in encoder.state_dict().items()}
    for name, value in encoder.state_dict().items():
        names[f"module.encoder_k.{name}"] = value + (name == "bn1.running_mean")
    torch.save({"epoch": 200, "state_dict": names}, tmp_path / "moco.pth.tar")
    backbone = load_backbone(tmp_path / "moco.pth.tar")
    features = torch.randn(3, 512)
    with torch.no_grad():
        expected = normalize(head(features), dim=1)
    assert_equal_up_to_rounding(load_projector(backbone).embeddings(features), expected)
    copy = load_backbone(tmp_path / "moco.pth.tar", branch="encoder_k")
    assert "head state_dict.module.encoder_q.fc. belongs to the query" in missing_projector_reason(
        copy
    )


def test_random_backbone_has_no_projector(small_backbone: Encoder, four_heads: Path) -> None:
    for backbone in (small_backbone, with_heads(load_backbone(four_heads), [0, 1])):
        assert "has no projector" in missing_projector_reason(backbone)


def test_the_encoder_file_of_another_backbone_is_refused(
    small_backbone: Encoder, tmp_path: Path
) -> None:
    second = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=small_backbone.input)
    encoder_file(second, tmp_path / "encoder.pt")
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert "contains another backbone" in missing_projector_reason(backbone)


def one_head(
    *, features: tuple[int, int] = (0, 512), layers: object = None, **norm: object
) -> list[dict[str, object]]:
    """Projectors with unusual features, layers or batch norm entries."""
    usual = two_layers()
    usual[1] |= norm
    return [{"features": [*features], "layers": usual if layers is None else layers}]


@pytest.mark.parametrize(
    ("projectors", "message"),
    [
        ([], "0 projectors"),
        (one_head(features=(0, 513)), "size mismatch for weight"),
        (one_head(features=(0, 256)), r"\[8, 256\]"),
        (one_head(layers=[{"kind": "softmax"}]), "layer softmax"),
        (one_head(running_mean=torch.ones(9)), r"running_mean.*\[9\]"),
        (one_head(bias=torch.full((8,), torch.nan)), "NaN"),
        (one_head(bias=3.0), "Missing key.*bias"),
    ],
)
def test_unexpected_projector_is_refused_with_a_reason(
    projectors: object, message: str, small_backbone: Encoder, tmp_path: Path
) -> None:
    path = encoder_file(small_backbone, tmp_path / "encoder.pt", projectors)
    with pytest.raises(BackboneError, match=rf"(?s)^{path}: .*{message}"):
        load_projector(load_backbone(path))


def test_a_torn_encoder_file_is_refused_with_its_name(
    small_backbone: Encoder, tmp_path: Path
) -> None:
    path = encoder_file(small_backbone, tmp_path / "encoder.pt")
    path.write_bytes(path.read_bytes()[:-5000])
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert str(path) in missing_projector_reason(backbone)
