"""Errors and printed objects of the Python API."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from transfer import BackboneError, Encoder, SuiteError, evaluate, load_backbone
from transfer.argument_names import with_argument_names

SQUARE: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.25,) * 3}


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_a_network_or_a_path_is_answered_with_the_line_to_write(checkpoint: Path) -> None:
    for given in (network(), str(checkpoint)):
        with pytest.raises(SuiteError) as refused:
            evaluate(given, "cifar10_knn")  # type: ignore[arg-type]
        assert "Encoder.from_module(network, size_px=224, mean=(0.485" in str(refused.value)
        assert "load_backbone(path)" in str(refused.value)


def test_paths_may_be_strings(checkpoint: Path) -> None:
    assert load_backbone(str(checkpoint)).sha256 == load_backbone(checkpoint).sha256
    with pytest.raises(BackboneError, match=r"nowhere\.pth: no such file"):
        load_backbone("nowhere.pth")


def test_errors_in_python_name_arguments(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "net.pth")
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef build():\n    return nn.Sequential(nn.Conv2d(3, 8, 3, 2))\n"
    )
    own = f"{tmp_path / 'net.py'}:build"
    file, vit = str(tmp_path / "net.pth"), "timm:vit_small_patch16_224"
    encoder = Encoder.from_module(network(), size_px=32, **SQUARE)
    wrong_pool: dict[str, Any] = {**SQUARE, "size_px": 32, "pool": "avg"}
    calls: dict[str, Callable[[], object]] = {
        "pass `mean` and `std`": lambda: Encoder.from_file(file, encoder=own, size_px=32),
        "have no name of": lambda: Encoder.from_file(file, encoder=vit, **SQUARE),
        "pool='avg'": lambda: Encoder.from_file(file, encoder=own, **wrong_pool),
        "encoder='vit'": lambda: Encoder.from_file(file, encoder="vit"),
        "`encoder` of Encoder.from_file": lambda: load_backbone(file),
        "leave out `pool`": lambda: Encoder.from_module(
            network(), size_px=32, pool="cls", **SQUARE
        ),
        "`schedule` 'fast'": lambda: evaluate(encoder, "cifar10_knn", schedule="fast"),
    }
    for fact, call in calls.items():
        with pytest.raises(SuiteError, match=re.escape(fact)) as refused:
            call()
        assert "--" not in str(refused.value)


def test_options_of_commands_stay_options() -> None:
    command = "See all: python -m transfer check-data --data /datasets"
    assert with_argument_names(command) == command
    assert with_argument_names("give another --results; or --checkpoint-key teacher") == (
        "give another `results`; or branch='teacher'"
    )


def test_an_encoder_and_a_result_are_shown_on_one_screen(
    small_backbone: Encoder, small_data: Path, tmp_path: Path
) -> None:
    result = evaluate(
        small_backbone, "cifar10_knn", data=small_data, schedule="smoke", runs=tmp_path
    )
    top1 = f"{result.metrics['top1']:.2f} %"
    for output, fields in (
        (small_backbone, ("resnet18", "512 per image", small_backbone.sha256[:12])),
        (result, (top1, "uniclr-2022/1", "schedule smoke", "num_neighbors 20 instead of 200")),
    ):
        text, page = str(output), output._repr_html_()
        assert len(text.splitlines()) < 24
        assert len(text) < 3000
        for fact in fields:
            assert fact in text
            assert fact in page
        assert page.startswith("<table>")
    odd = Encoder.from_module(network(), size_px=32, name="<b>", **SQUARE)
    assert "<b>" not in odd._repr_html_()
