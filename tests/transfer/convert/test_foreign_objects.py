"""Objects that only foreign code could make are named and not read; the network beside them is."""

import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.transfer.convert.conftest import Weights
from transfer.__main__ import main
from transfer.backbone import BackboneError, load_backbone
from transfer.convert.read_file import read_file


class Foreign:
    """An object that a pickle stores as a call of a function with arguments."""

    def __init__(self, function: Callable[..., object], *args: object) -> None:
        self.reduced = function, args

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.reduced


class Plain(Tensor):
    """A tensor whose values torch rebuilds."""


class Wrapped(Tensor):
    """A tensor without storage, as quantized and distributed ones are."""

    @classmethod
    def __torch_dispatch__(cls, *_: object, **__: object) -> object:
        return NotImplemented


def quantized() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def subclass_rebuilt_elsewhere() -> Foreign:
    by = torch._utils._rebuild_wrapper_subclass
    args = (torch.float32, (3,), (1,), 0, torch.strided, "cpu", False)
    return Foreign(torch._tensor._rebuild_from_type_v2, by, Tensor, args, {"scale": torch.ones(3)})


MADE_BY_FUNCTIONS: dict[str, Callable[[], object]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "rows of a sparse matrix": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": quantized,
    "unsigned": lambda: torch.ones(3).to(torch.uint16),
    "eight bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "without values": lambda: torch.ones(3, device="meta"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [False, True]),
    "of a subclass": subclass_rebuilt_elsewhere,
    "on another device": lambda: Foreign(
        torch._utils._rebuild_device_tensor_from_numpy, np.ones(3), torch.float32, "xla:0", False
    ),
}
"""Values that torch and NumPy rebuild by functions which the reader does not know."""


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_beside_values_that_unknown_functions_make_are_read(
    is_zip: bool, tmp_path: Path
) -> None:
    made = {name: make() for name, make in MADE_BY_FUNCTIONS.items()}
    content = {"statistics": made, "net": {"a": torch.ones(2)}}
    torch.save(content, tmp_path / "file", _use_new_zipfile_serialization=is_zip)
    contents = read_file(tmp_path / "file")
    assert list(contents.tensors) == ["net.a"]
    assert sorted(contents.opaque) == sorted(f"statistics.{name}" for name in made)


@pytest.mark.parametrize("name", ["quantized", "without values", "of a subclass"])
def test_a_weight_of_the_network_that_is_not_read_refuses_the_file_with_its_name(
    name: str, weights: Callable[..., Weights], tmp_path: Path
) -> None:
    content: dict[str, Any] = {**weights(), "layer1.0.conv1.weight": MADE_BY_FUNCTIONS[name]()}
    torch.save({"state_dict": content}, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"not read.*layer1\.0\.conv1\.weight.*_rebuild_"):
        load_backbone(tmp_path / "file")


def test_a_subclass_of_tensor_is_read_where_torch_rebuilds_it(
    weights: Callable[..., Weights], tmp_path: Path
) -> None:
    """Its values are read where torch rebuilds them, and refused where its own function does."""
    wrapped = f"{Wrapped.__module__}.{Wrapped.__qualname__}"
    name, content = "layer1.0.conv1.weight", weights()
    content[name] = content[name].as_subclass(Plain)
    torch.save(content, tmp_path / "file")
    assert load_backbone(tmp_path / "file").sha256
    content[name] = Tensor._make_wrapper_subclass(Wrapped, content[name].shape)
    torch.save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match=re.escape(wrapped)):
        load_backbone(tmp_path / "file")


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_tensor_among_the_networks_that_is_not_read_refuses_the_file(
    prefix: str, weights: Callable[..., Weights], tmp_path: Path
) -> None:
    content = {prefix + name: tensor for name, tensor in weights().items()}
    content[f"{prefix}layer1.0.attention"] = torch.eye(3).to_sparse()
    torch.save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"layer1\.0\.attention.*_rebuild_sparse_tensor"):
        load_backbone(tmp_path / "file")


def test_a_momentum_copy_does_not_replace_a_query_encoder_that_is_not_read(
    weights: Callable[..., Weights], tmp_path: Path
) -> None:
    sparse = torch.eye(3).to_sparse()
    query = {f"encoder_q.{name}": sparse for name in weights()}
    key = {f"encoder_k.{name}": tensor for name, tensor in weights().items()}
    torch.save(OrderedDict({**query, **key}), tmp_path / "file")
    with pytest.raises(BackboneError, match=r"not read encoder_q\.conv1\.weight"):
        load_backbone(tmp_path / "file")


def test_a_pickled_network_beside_an_optimizer_is_named(tmp_path: Path) -> None:
    content = {"model": torch.nn.Linear(2, 2), "momentum": {"0": torch.ones(2)}}
    torch.save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"not read: torch\.nn\.modules\.linear\.Linear"):
        load_backbone(tmp_path / "file")


LONE = "\ud800"
"""Half of a surrogate pair, which UTF-8 cannot encode."""


def test_names_that_no_stream_can_print_are_shown_escaped(
    weights: Callable[..., Weights], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        f"net{LONE}": weights(),
        f"other{LONE}": torch.ones(2),
        "arch": f"resnet18{LONE}",
        "args": Foreign(Foreign, 1),
    }
    (tmp_path / "file").write_bytes(pickle.dumps(content))
    assert main(["inspect", str(tmp_path / "file"), "--all"]) == 0
    shown = capsys.readouterr().out
    assert r"net\ud800" in shown
    assert r"other\ud800" in shown
    assert r"resnet18\ud800" in shown


def test_a_tensor_and_an_object_of_one_name_are_refused(tmp_path: Path) -> None:
    content = {"a.b": torch.ones(2), "a": {"b": torch.eye(2).to_sparse()}}
    (tmp_path / "file").write_bytes(pickle.dumps(content))
    with pytest.raises(BackboneError, match=r"both called 'a\.b'"):
        read_file(tmp_path / "file")
