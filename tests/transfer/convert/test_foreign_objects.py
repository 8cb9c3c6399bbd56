"""Objects that only foreign code could make are named and not read; the network beside them is."""

import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.transfer.convert.conftest import GetWeights
from tests.transfer.convert.damage import Call, legacy_bytes, zip_bytes
from tests.transfer.convert.naming import below, refuse
from transfer.__main__ import main
from transfer.backbone import load_backbone
from transfer.convert.read_file import read_file


class Plain(Tensor):
    """A tensor whose values torch rebuilds."""


class Wrapped(Tensor):
    """A tensor without storage, as quantized and distributed ones are."""

    @classmethod
    def __torch_dispatch__(cls, *_: object, **__: object) -> object:
        return NotImplemented


def quantized() -> Tensor:
    with warnings.catch_warnings(action="ignore"):
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)


def subclass_rebuilt_elsewhere() -> Call:
    by = torch._utils._rebuild_wrapper_subclass
    args = (torch.float32, (3,), (1,), 0, torch.strided, "cpu", False)
    return Call(torch._tensor._rebuild_from_type_v2, by, Tensor, args, {"scale": torch.ones(3)})


MADE_BY_FUNCTIONS: dict[str, Callable[[], object]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "rows of a sparse matrix": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": quantized,
    "unsigned": lambda: torch.ones(3).to(torch.uint16),
    "eight bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "without values": lambda: torch.ones(3, device="meta"),
    "masked": lambda: np.ma.masked_array([1.0, 2.0], [False, True]),
    "of a subclass": subclass_rebuilt_elsewhere,
    "on another device": lambda: Call(
        torch._utils._rebuild_device_tensor_from_numpy, np.ones(3), torch.float32, "xla:0", False
    ),
}
"""Values that torch and NumPy rebuild by functions which the reader does not know."""


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("stored", [zip_bytes, legacy_bytes])
def test_tensors_beside_values_that_unknown_functions_make_are_read(
    stored: Callable[[object], bytes], tmp_path: Path
) -> None:
    made = {name: make() for name, make in MADE_BY_FUNCTIONS.items()}
    (tmp_path / "file").write_bytes(stored({"statistics": made, "net": {"a": torch.ones(2)}}))
    contents = read_file(tmp_path / "file")
    assert list(contents.tensors) == ["net.a"]
    assert sorted(contents.opaque) == sorted(f"statistics.{name}" for name in made)


def test_a_weight_that_is_not_read_refuses_the_file_with_its_name(
    weights: GetWeights, tmp_path: Path
) -> None:
    name = "layer1.0.conv1.weight"
    for kind in ("quantized", "without values", "of a subclass"):
        content: dict[str, Any] = {**weights(), name: MADE_BY_FUNCTIONS[kind]()}
        refuse(
            {"state_dict": content}, tmp_path / "file", f"not read state_dict.{name}", "_rebuild_"
        )


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_tensor_among_the_networks_that_is_not_read_refuses_the_file(
    prefix: str, weights: GetWeights, tmp_path: Path
) -> None:
    content = below(prefix, {**weights(), "layer1.0.attention": torch.eye(3).to_sparse()})
    refuse(content, tmp_path / "file", "layer1.0.attention", "_rebuild_sparse_tensor")


def test_a_momentum_copy_does_not_replace_a_query_encoder_that_is_not_read(
    weights: GetWeights, tmp_path: Path
) -> None:
    query = {f"encoder_q.{name}": torch.eye(3).to_sparse() for name in weights()}
    content = {**query, **below("encoder_k.", weights())}
    refuse(content, tmp_path / "file", "not read encoder_q.conv1.weight")


def test_a_pickled_network_beside_an_optimizer_is_named(tmp_path: Path) -> None:
    content = {"model": torch.nn.Linear(2, 2), "momentum": {"0": torch.ones(2)}}
    refuse(content, tmp_path / "file", "not read: torch.nn.modules.linear.Linear")


def test_a_subclass_of_tensor_is_read_where_torch_rebuilds_it(
    weights: GetWeights, tmp_path: Path
) -> None:
    """Its values are read where torch rebuilds them, and refused where its own function does."""
    name, content = "layer1.0.conv1.weight", weights()
    content[name] = content[name].as_subclass(Plain)
    torch.save(content, tmp_path / "file")
    assert load_backbone(tmp_path / "file").sha256
    content[name] = Tensor._make_wrapper_subclass(Wrapped, content[name].shape)
    refuse(content, tmp_path / "file", f"{Wrapped.__module__}.{Wrapped.__qualname__}")


def test_names_that_no_stream_can_print_are_shown_escaped(
    weights: GetWeights, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = "\ud800"  # of a surrogate pair, which UTF-8 cannot encode
    content = {f"net{half}": weights(), f"other{half}": torch.ones(2), "arch": f"resnet18{half}"}
    (tmp_path / "file").write_bytes(pickle.dumps(content))
    assert main(["inspect", str(tmp_path / "file"), "--all"]) == 0
    shown = re.findall(r"(\w+)\\ud800", capsys.readouterr().out)
    assert set(shown) == {"net", "other", "resnet18"}
