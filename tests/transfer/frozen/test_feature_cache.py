"""One pass over the images serves several backbones.

Stops and kept crops change no feature.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

import transfer.frozen.extraction
import transfer.frozen.feature_cache
from pretrain.running import stop
from pretrain.running.host_memory import SHARERS
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder, InputFormat, Precision, random_backbone
from transfer.frozen.extraction import num_workers
from transfer.frozen.feature_cache import (
    Features,
    cache_key,
    features_of_backbones,
    open_images,
)
from transfer.frozen.linear_heads import training_hash
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.transforms import EvalTransform

TRANSFORM = EvalTransform(resize_px=37, crop_px=32)


@pytest.fixture
def folders(small_data: Path, tmp_path: Path) -> Folders:
    return Folders(small_data, tmp_path / "cache", tmp_path / "work")


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Image.Image]:
    """All images that are decoded during a test."""
    images: list[Image.Image] = []
    pixels = EvalTransform.pixels

    def counted(transform: EvalTransform, image: Image.Image) -> Image.Image:
        images.append(image)
        return pixels(transform, image)

    monkeypatch.setattr(EvalTransform, "pixels", counted)
    return images


def extract(backbone: Encoder, folders: Folders) -> Features:
    return features_of_backbones([backbone], "dtd", "val", TRANSFORM, folders)[0]


def test_progress_names_the_rotation(
    small_backbone: Encoder, folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    for turns, name in ((0, "dtd val  "), (1, "dtd val turned by 90°  ")):
        turned = replace(TRANSFORM, turns=turns)
        features_of_backbones([small_backbone], "dtd", "val", turned, folders)
        assert f"features    {name}" in capsys.readouterr().err


def test_extraction_resumes_after_the_last_batch(
    small_backbone: Encoder,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    decoded: list[Image.Image],
) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_BATCH", 20)
    expected = extract(small_backbone, folders).features
    keeping = replace(folders, cache=folders.cache / "kept", keep_crops=True)
    decoded.clear()
    with monkeypatch.context() as patch:
        patch.setattr(stop, "_received_signals", [15])
        with pytest.raises(stop.Stopped):
            extract(small_backbone, keeping)
    assert len(decoded) == 20
    for sha256 in (small_backbone.sha256, "other"):
        backbone = replace(small_backbone, sha256=sha256)
        assert torch.equal(extract(backbone, keeping).features, expected)
        assert len(decoded) == len(expected)


def test_crops_without_room_are_named_and_not_kept(
    small_backbone: Encoder,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = SimpleNamespace(free=1000)
    monkeypatch.setattr(transfer.frozen.extraction, "disk_usage", lambda _: full)
    keeping = replace(folders, keep_crops=True)
    assert torch.equal(
        extract(small_backbone, keeping).features, extract(small_backbone, folders).features
    )
    assert "not cached" in capsys.readouterr().err
    assert not list((folders.cache / "crops").iterdir())


def test_a_border_is_cut_off_before_anything_else() -> None:
    framed = np.full((40, 44, 3), (255, 0, 0), np.uint8)
    framed[2:-2, 2:-2] = (0, 80, 0)
    transform = EvalTransform(resize_px=32, crop_px=32, border_px=2)
    assert set(np.asarray(transform.pixels(Image.fromarray(framed))).reshape(-1, 3)[:, 0]) == {0}


def test_several_backbones_share_one_pass_over_the_images(
    small_backbone: Encoder, folders: Folders, decoded: list[Image.Image]
) -> None:
    second = random_backbone(
        arch="resnet18", stem="imagenet", seed=1, input=InputFormat(mean=(0, 0, 0), size_px=32)
    )
    single = [extract(backbone, folders).features for backbone in (small_backbone, second)]
    elsewhere = replace(folders, cache=folders.cache / "together")
    decoded.clear()
    both = features_of_backbones([small_backbone, second], "dtd", "val", TRANSFORM, elsewhere)
    assert len(decoded) == 80
    for item, shared in zip(single, both, strict=True):
        assert torch.equal(item, shared.features)


def test_a_pass_goes_on_where_a_stop_left_one_of_its_backbones(
    small_backbone: Encoder,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    decoded: list[Image.Image],
) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_BATCH", 20)
    pair = [small_backbone, replace(small_backbone, sha256="other")]
    single = [extract(backbone, folders).features for backbone in pair]
    elsewhere = replace(folders, cache=folders.cache / "together")
    with monkeypatch.context() as patch:
        patch.setattr(stop, "_received_signals", [15])
        with pytest.raises(stop.Stopped):
            extract(pair[0], elsewhere)
    decoded.clear()
    both = features_of_backbones(pair, "dtd", "val", TRANSFORM, elsewhere)
    assert len(decoded) == 80
    for item, shared in zip(single, both, strict=True):
        assert torch.equal(item, shared.features)


def test_a_pass_that_is_stopped_continues_with_all_its_backbones(
    small_backbone: Encoder,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    decoded: list[Image.Image],
) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_BATCH", 20)
    pair = [small_backbone, replace(small_backbone, sha256="other")]
    with monkeypatch.context() as patch:
        patch.setattr(stop, "_received_signals", [15])
        with pytest.raises(stop.Stopped):
            features_of_backbones(pair, "dtd", "val", TRANSFORM, folders)
    features_of_backbones(pair, "dtd", "val", TRANSFORM, folders)
    assert len(decoded) == 80


@pytest.mark.parametrize("cores", [1, 12, 40])
def test_loaders_are_a_share_of_the_cores(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(cores))
    for sharers in (1, 4):
        monkeypatch.setenv(SHARERS, str(sharers))
        assert num_workers(100_000) == max(1, cores // sharers)
    assert num_workers(2000) == 0
    assert num_workers(3000) <= 5  # each start has to pay


def test_features_in_bfloat16_differ_but_little(small_backbone: Encoder, folders: Folders) -> None:
    fast = replace(small_backbone, precision="bfloat16")
    exact, rounded = (extract(b, folders).features for b in (small_backbone, fast))
    assert not torch.equal(exact, rounded)
    # forty roundings by 2^-9 at most, of weights and maps, make an angle of 0.045 if all agree
    assert torch.cosine_similarity(exact, rounded).min() > 0.999


def test_features_and_probes_in_tf32_have_files_of_their_own(
    small_backbone: Encoder, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_images("dtd", "val", folders)
    probe = ProbeTraining(learning_rates=(0.1,), steps=10, batch_size=16)
    keys = set()
    for tf32 in (False, True):  # a GPU before Ampere, and one since
        monkeypatch.setattr(transfer.frozen.feature_cache, "tf32_convolutions", lambda t=tf32: t)
        for precision in get_args(Precision):
            backbone = replace(small_backbone, precision=precision)
            keys.add(("features", cache_key(backbone, images, TRANSFORM)))
            keys.add(("probe", training_hash(backbone, images, probe, seed=0)))
    assert len(keys) == 2 * (len(get_args(Precision)) + 1)  # float32 alone differs
