"""Image size, mean and std are checked equally for every source."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from transfer import Encoder
from transfer.__main__ import main
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import InputFormat

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BYTES_MEAN, BYTES_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "bytes": ({"mean": BYTES_MEAN, "std": BYTES_STD}, "mean is .*divide .* by 255"),
    "std of bytes": ({"std": BYTES_STD}, "std is .*divide .* by 255"),
    "std of 255": ({"mean": (0, 0, 0), "std": [255] * 3}, "std is .*divide .* by 255"),
    "two numbers": ({"mean": (0.5, 0.5)}, "mean is .*three numbers"),
    "one number": ({"std": 0.5}, "std is 0.5; expected three numbers"),
    "text": ({"mean": "123"}, "mean is '123'; expected three numbers"),
    "negative mean": ({"mean": (-0.5, 0.5, 0.5)}, "mean is .*at least 0"),
    "zero std": ({"std": (0.2, 0.0, 0.2)}, "std is .*above 0"),
    "negative std": ({"std": (-0.2, 0.2, 0.2)}, "std is .*above 0"),
    "NaN": ({"mean": (float("nan"), 0.5, 0.5)}, "mean is .*at least 0 and at most 1"),
    "two sides": ({"size_px": (32, 32)}, r"size_px is \(32, 32\)"),
    "float side": ({"size_px": 32.5}, "size_px is 32.5"),
    "tiny side": ({"size_px": -32}, "size_px is -32; .*at least 8"),
}


def network() -> nn.Sequential:
    layers = nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers)


def from_module(stated: dict[str, Any], folder: Path) -> Encoder:
    return Encoder.from_module(network(), **stated)


def from_users_file(stated: dict[str, Any], folder: Path) -> Encoder:
    # the folder is used again, and bytecode of an equally long file of this second counts as new
    code = folder / f"mine{zlib.crc32(repr(stated).encode())}.py"
    weights = folder / "mine.pth"
    code.write_text(
        "from torch import nn\nfrom numpy import array, float32\nfrom torch import tensor\n"
        f"nan = float('nan')\nINPUT = {stated!r}\n\ndef build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), "
        "nn.Flatten())\n"
    )
    torch.save(network().state_dict(), weights)
    return Encoder.from_file(weights, encoder=f"{code}:build")


DOORS: tuple[Callable[[dict[str, Any], Path], Encoder], ...] = (from_module, from_users_file)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", WRONG)
def test_input_that_normalizes_no_image_is_refused(
    what: str, door: Callable[[dict[str, Any], Path], Encoder], tmp_path: Path
) -> None:
    changes, expected = WRONG[what]
    with pytest.raises(BackboneError, match=expected):
        door({"size_px": 32, "mean": MEAN, "std": STD} | changes, tmp_path)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
@pytest.mark.parametrize("door", DOORS)
def test_sequences_and_arrays_are_accepted(
    door: Callable[[dict[str, Any], Path], Encoder], kind: Callable[[Any], Any], tmp_path: Path
) -> None:
    stated = {"size_px": 32, "mean": kind((0.5, 0.25, 0.75)), "std": kind((0.25,) * 3)}
    result = door(stated, tmp_path).input
    assert result == InputFormat(size_px=32, mean=(0.5, 0.25, 0.75), std=(0.25,) * 3)


def test_integers_and_floats_give_one_hash() -> None:
    ours = network()
    result = [
        Encoder.from_module(ours, size_px=32, mean=mean, std=std).sha256
        for mean, std in (((0, 0, 0), (1, 1, 1)), ((0.0,) * 3, [1.0] * 3))
    ]
    assert result[0] == result[1]


def test_users_file_with_another_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"mine\d+.py: INPUT is \(224"):
        from_users_file((224, MEAN, STD), tmp_path)  # type: ignore[arg-type]


def test_command_line_refuses_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["inspect", "mine.pth", "--encoder", "mine.py:build", "--input-px", "32"]
    mean, std = (["--input-" + name, *map(str, BYTES_MEAN)] for name in ("mean", "std"))
    assert main([*args, *mean, *std]) == 2
    assert "--input-mean 123.675 116.28 103.53: expected at least 0 and at most 1" in (
        capsys.readouterr().err
    )


def test_folder_of_transformers_with_bytes_is_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=1, image_size=32
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    output = {"image_mean": BYTES_MEAN, "image_std": BYTES_STD, "size": {"height": 32}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(output))
    with pytest.raises(BackboneError, match=r"mean is .*by 255"):
        Encoder.from_file(tmp_path / "model.safetensors", encoder=f"hf:{tmp_path}", pool="cls")
