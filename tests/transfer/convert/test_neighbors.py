"""Tensors beside a ResNet are named rightly, and do not keep it from loading."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.transfer.convert.naming import (
    Weights,
    another,
    below,
    linear,
    refuse,
)
from transfer.__main__ import main
from transfer.backbone import BackboneError, inspect_file, load_backbone

GetWeights = Callable[..., Weights]

COUNTERS: dict[str, tuple[Tensor, int]] = {
    "(1,)": (torch.tensor([7]), 7),
    "(3,)": (torch.tensor([7, 8, 9]), 7),
    "(2, 2)": (torch.full((2, 2), 7), 7),
    "(0,)": (torch.zeros(0, dtype=torch.int64), 0),
    "float": (torch.tensor(7.0), 7),
    "NaN": (torch.tensor(float("nan")), 0),
    "infinite": (torch.tensor([float("inf")]), 0),
    "negative": (torch.tensor(-3), 0),
    "complex": (torch.tensor([1j]), 0),
    "bool": (torch.tensor(True), 1),
    "expanded": (torch.tensor(7).expand(2**20, 2**20), 0),
}


def test_a_step_counter_may_have_any_shape_and_type(weights: GetWeights, tmp_path: Path) -> None:
    plain = another(weights())
    names = [name for name in plain if name.endswith("num_batches_tracked")]
    counters = dict(zip(names, COUNTERS.values(), strict=False))
    assert len(counters) == len(COUNTERS)
    torch.save(plain | {n: counter for n, (counter, _) in counters.items()}, tmp_path / "file")
    found = load_backbone(tmp_path / "file").state_dict
    assert [n for n, (_, count) in counters.items() if found[n].item() != count] == []


def test_a_feature_pyramid_in_an_encoder_is_left_out_and_named(
    weights: GetWeights, tmp_path: Path
) -> None:
    expected = weights()
    pyramid = {
        **linear("fpn_lateral5", 256, 512, 1, 1),
        **linear("fpn_lateral4", 256, 256, 1, 1),
        **linear("fpn_output4.0", 256, 256, 3, 3),
        "fpn_output4.1.running_mean": torch.ones(256),
    }
    content = {
        **below("module.encoder_q.", {**expected, **pyramid, **linear("fc.0", 512, 512)}),
        **below("module.encoder_k.", {**another(expected), **pyramid}),
    }
    torch.save({"state_dict": content}, tmp_path / "file")
    inspection = inspect_file(tmp_path / "file")
    kinds = {group.kind: group.num_tensors for group in inspection.account}
    assert (kinds["feature pyramid"], kinds["head"]) == (7, 2)
    backbone = load_backbone(tmp_path / "file")
    assert torch.equal(backbone.state_dict["conv1.weight"], expected["conv1.weight"])


def clip(prefix: str) -> Weights:
    """Return the telling tensors of CLIP's ResNet-50, whose blocks have torchvision's names."""
    blocks = {f"layer1.0.conv{i}.weight": torch.ones(64, 64, 1, 1) for i in (1, 2, 3)}
    norms = {
        f"layer{stage}.{block}.bn{i}.{kind}": torch.ones(64)
        for stage in (1, 2)
        for block in (0, 1, 2)
        for i in (1, 2, 3)
        for kind in ("weight", "bias")
    }
    stem = {f"conv{i}.weight": torch.ones(32, 3, 3, 3) for i in (1, 2, 3)}
    pool = {"attnpool.positional_embedding": torch.ones(50, 2048)}
    return below(prefix, {**stem, **blocks, **norms, **pool, **linear("attnpool.q_proj", 8, 8)})


@pytest.mark.parametrize("prefix", ["", "visual.", "module.visual."])
def test_clips_resnet_is_named_and_refused(prefix: str, tmp_path: Path) -> None:
    text = {
        "transformer.resblocks.0.attn.in_proj_weight": torch.ones(3, 3),
        "pos_embed": torch.ones(1),
    }
    content = {**clip(prefix), **text}
    refuse(content, tmp_path / "file", "CLIP's modified ResNet", "attention pooling")
    with pytest.raises(BackboneError) as error:
        load_backbone(tmp_path / "file")
    assert "Vision Transformer" not in str(error.value)


@pytest.mark.parametrize(("num_classes", "noted"), [(1000, True), (128, False)])
def test_a_classifier_of_imagenet_is_noted(
    num_classes: int, noted: bool, weights: GetWeights, tmp_path: Path
) -> None:
    content = {**another(weights()), **linear("fc", num_classes, 512)}
    torch.save({"state_dict": below("module.", content)}, tmp_path / "file")
    notes = " ".join(inspect_file(tmp_path / "file").notes)
    assert ("state_dict.module.fc.weight tells 1000 classes apart" in notes) == noted


LONG = "a" * 300


@pytest.mark.parametrize(
    "words", [["inspect"], ["cifar10_knn", "--dry-run", "--name", "long", "--ckpt"]]
)
def test_a_long_name_ends_a_command_with_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, LONG]) == 2
    assert "too long" in capsys.readouterr().err
