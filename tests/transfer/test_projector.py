"""The projector of a backbone: our encoder file, MoCo's head, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.conftest import own_file
from tests.rounding import assert_equal_up_to_rounding
from transfer.backbone import Backbone, BackboneError, load_backbone, random_backbone, with_heads
from transfer.convert.resnet import build_resnet
from transfer.projector import load_projector, why_no_projector


def two_layers() -> list[dict[str, Any]]:
    """A projector 512 -> 8 -> 4 with batch norm, and a plain output."""
    generator = torch.Generator().manual_seed(0)
    return [
        {"kind": "linear", "weight": torch.randn(8, 512, generator=generator)},
        {
            "kind": "batch_norm",
            "eps": 1e-3,
            "running_mean": torch.randn(8, generator=generator),
            "running_var": torch.rand(8, generator=generator) + 0.5,
            "weight": torch.randn(8, generator=generator),
            "bias": torch.randn(8, generator=generator),
        },
        {"kind": "relu"},
        {
            "kind": "linear",
            "weight": torch.randn(4, 8, generator=generator),
            "bias": torch.randn(4, generator=generator),
        },
    ]


def encoder_file(
    backbone: Backbone, path: Path, projectors: object = None, *, form: str = "ssl-encoder/1"
) -> Path:
    """An encoder file as the pre-training room writes it."""
    content = torch.load(own_file(backbone, {}, path), weights_only=True)
    usual = [{"features": [0, 512], "layers": two_layers()}]
    torch.save(
        {**content, "format": form, "projectors": usual if projectors is None else projectors}, path
    )
    return path


def by_hand(features: Tensor) -> Tensor:
    first, norm, _, last = two_layers()
    hidden = features @ first["weight"].T
    scale = norm["weight"] / (norm["running_var"] + norm["eps"]).sqrt()
    hidden = ((hidden - norm["running_mean"]) * scale + norm["bias"]).clamp_min(0)
    rows: Tensor = hidden @ last["weight"].T + last["bias"]
    return rows


def test_embeddings_are_the_layers_one_after_the_other_of_unit_length(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    backbone = load_backbone(encoder_file(small_backbone, tmp_path / "encoder.pt"))
    features = torch.randn(5, 512, generator=torch.Generator().manual_seed(1))
    found = load_projector(backbone).embeddings(features)
    assert_equal_up_to_rounding(found, normalize(by_hand(features), dim=1))


def test_an_encoder_file_is_the_same_backbone_as_the_backbone_file(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    plain = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    encoder = load_backbone(encoder_file(small_backbone, tmp_path / "encoder.pt"))
    assert encoder.sha256 == plain.sha256


def test_the_encoder_file_beside_a_backbone_file_is_found(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    encoder_file(small_backbone, tmp_path / "encoder.pt")
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert load_projector(backbone).source == "encoder.pt: 1 projector"


def test_cosines_of_several_heads_are_the_mean_of_the_heads_cosines(tmp_path: Path) -> None:
    backbone = random_backbone(arch="resnet18-heads2", stem="cifar", seed=0)
    heads = [{"features": [512 * h, 512 * h + 512], "layers": two_layers()} for h in range(2)]
    loaded = load_backbone(encoder_file(backbone, tmp_path / "encoder.pt", heads))
    features = torch.randn(3, 1024, generator=torch.Generator().manual_seed(1))
    found = load_projector(loaded).embeddings(features)
    each = [normalize(by_hand(part), dim=1) for part in features.split(512, dim=1)]
    mean = torch.stack([rows @ rows.T for rows in each]).mean(dim=0)
    assert_equal_up_to_rounding(found @ found.T, mean)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_mocos_head_is_read_from_its_checkpoint(version: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder: Any = build_resnet("resnet18", "imagenet")
    linear = nn.Linear(512, 16)
    head = linear if version == "v1" else nn.Sequential(nn.Linear(512, 512), nn.ReLU(), linear)
    encoder.fc = head
    names = {f"module.encoder_q.{name}": value for name, value in encoder.state_dict().items()}
    names |= {f"module.encoder_k.{name}": value for name, value in encoder.state_dict().items()}
    torch.save({"epoch": 200, "state_dict": names}, tmp_path / "moco.pth.tar")
    backbone = load_backbone(tmp_path / "moco.pth.tar")
    features = torch.randn(3, 512)
    with torch.no_grad():
        expected = normalize(head(features), dim=1)
    assert_equal_up_to_rounding(load_projector(backbone).embeddings(features), expected)


def test_a_random_backbone_and_some_heads_of_a_network_have_no_projector(
    small_backbone: Backbone, four_heads: Path
) -> None:
    for backbone in (small_backbone, with_heads(load_backbone(four_heads), [0, 1])):
        assert "has no projector" in why_no_projector(backbone)


def test_the_encoder_file_of_another_backbone_is_refused(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    other = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=small_backbone.input)
    encoder_file(other, tmp_path / "encoder.pt")
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert "holds another backbone" in why_no_projector(backbone)


def changed(**values: object) -> list[dict[str, Any]]:
    layers = two_layers()
    layers[1] |= values
    return layers


@pytest.mark.parametrize(
    ("projectors", "said"),
    [
        ([], "expected a list with the layers of each head"),
        ([{"features": [0, 513], "layers": two_layers()}], r"\[start, stop\) of 512"),
        ([{"features": [0, 256], "layers": two_layers()}], r"shape \(8, 256\)"),
        ([{"features": [0, 512], "layers": []}], "and its layers"),
        ([{"features": [0, 512], "layers": [{"kind": "softmax"}]}], "expected a linear layer"),
        (
            [{"features": [0, 512], "layers": changed(running_mean=torch.ones(9))}],
            r"\(9,\), expected",
        ),
        ([{"features": [0, 512], "layers": changed(running_var=-torch.ones(8))}], "negative"),
        ([{"features": [0, 512], "layers": changed(bias=torch.full((8,), torch.nan))}], "NaN"),
        ([{"features": [0, 512], "layers": changed(bias=3.0)}], "expected a tensor"),
    ],
)
def test_a_projector_that_is_not_as_expected_is_refused_with_the_file_and_the_reason(
    projectors: object, said: str, small_backbone: Backbone, tmp_path: Path
) -> None:
    path = encoder_file(small_backbone, tmp_path / "encoder.pt", projectors)
    with pytest.raises(BackboneError, match=said) as caught:
        load_projector(load_backbone(path))
    assert str(caught.value).startswith(str(path))


def test_a_torn_encoder_file_is_refused_with_its_name(
    small_backbone: Backbone, tmp_path: Path
) -> None:
    path = encoder_file(small_backbone, tmp_path / "encoder.pt")
    path.write_bytes(path.read_bytes()[:-5000])
    backbone = load_backbone(own_file(small_backbone, {}, tmp_path / "backbone.pt"))
    assert str(path) in why_no_projector(backbone)
