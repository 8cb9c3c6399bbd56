"""No opcode of a pickle reaches code.

Plain data is read, and objects of foreign code are named.
"""

import argparse
import datetime
import io
import os
import pickle
import sys
import tempfile
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.transfer.encoders.conftest import another, below, load, read, refuse, weights
from tests.transfer.encoders.damage import Call, legacy_bytes, zip_bytes
from transfer.encoders import safe_unpickler
from transfer.encoders.architectures import BackboneError
from transfer.encoders.files import DAMAGE_ERRORS
from transfer.encoders.opening import load_backbone
from transfer.encoders.safe_unpickler import Inert

python_2_bytes = partial(pickle.dumps, protocol=0)
FORMATS: list[Callable[[Any], bytes]] = [zip_bytes, legacy_bytes, pickle.dumps, python_2_bytes]
in_each_format = pytest.mark.parametrize("stored", FORMATS)


@in_each_format
@pytest.mark.parametrize("location", ["top", "beside", "inside an allowed class"])
def test_a_payload_is_refused_by_name_and_never_runs(
    stored: Callable[[Any], bytes], location: str, file: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    payload = Call(os.system, f"touch {marker}")
    content = {
        "top": payload,
        "beside": {"state_dict": {"conv1.weight": torch.ones(3)}, "args": [payload]},
        "inside an allowed class": argparse.Namespace(command=payload),
    }[location]
    file.write_bytes(stored(content))
    with pytest.raises(BackboneError, match=r"system.*runs programs"):
        load_backbone(file)
    assert not marker.exists()
    pickle.loads(pickle.dumps(payload))  # which runs in Python's own reader
    assert marker.exists()


@in_each_format
def test_a_call_of_a_harmless_name_never_runs(
    stored: Callable[[Any], bytes], file: Path, tmp_path: Path
) -> None:
    call = Call(tempfile.mkdtemp, "", "marker", str(tmp_path))
    file.write_bytes(stored({"net": another(weights()), "args": call}))
    assert load_backbone(file).arch == "resnet18"
    assert list(tmp_path.glob("marker*")) == []


def named(path: str) -> bytes:
    """Return the start of a pickle that names a global, as "module:name"."""
    args = [arg.encode() for arg in path.split(":")]
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(w)]) + w for w in args) + b"\x93"


CALLS = (
    b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",  # GLOBAL and REDUCE
    b"\x80\x04\x8c\x02os\x8c\x06system\x93X\x04\x00\x00\x00true\x85R.",  # STACK_GLOBAL
    b"(S'true'\nios\nsystem\n.",  # INST
    b"(cos\nsystem\nS'true'\no.",  # OBJ
    b"\x80\x02cbuiltins\ngetattr\nX\x04\x00\x00\x00trueX\x05\x00\x00\x00upper\x86R.",
)
"""Calls by each opcode, and getattr of a text."""
NAMES = (
    *("os:system", "os.path:Config", "posix:Config", "subprocess:Popen", "timeit:Timer"),
    *("builtins:eval", "__builtin__:execfile", "code:InteractiveConsole", "pickle:Unpickler"),
    *("types:FunctionType", "types:CodeType", "ctypes:CDLL", "operator:attrgetter"),
    *("importlib:import_module", "importlib.machinery:SourceFileLoader", "json:loads"),
    *("concurrent.futures.process:ProcessPoolExecutor", "multiprocessing.pool:Pool"),
    *("collections:namedtuple", "collections:UserDict.__init__.__globals__"),
    *("collections:OrderedDict.fromkeys.__globals__", "torch:load", "numpy:load"),
    "torch.fx.graph_module:reduce_graph_module",
)
"""Functions and classes that run code, or lead to code that does."""


@pytest.mark.parametrize("program", [*CALLS, *(named(path) + b")R." for path in NAMES)])
def test_no_name_is_imported(program: bytes) -> None:
    try:
        loaded = safe_unpickler.load(io.BytesIO(program))
    except BackboneError as error:
        assert "runs programs" in str(error)  # noqa: PT017
    else:
        assert isinstance(loaded, Inert)


SOUND_DANGEROUS = (
    *("collections:UserDict", "code.utils:Config", "types:SimpleNamespace", "string:Template"),
    *("json.encoder:JSONEncoder", "site.settings:make_settings", "trace.utils:Tracker.State"),
    "builtins:ValueError",
)


def test_classes_of_modules_that_only_sound_dangerous_are_inert() -> None:
    for path in SOUND_DANGEROUS:
        state = b")\x81}X\x01\x00\x00\x00aK\x01sb."
        result = safe_unpickler.load(io.BytesIO(named(path) + state))
        assert isinstance(result, Inert)
        assert (result.path, result.attributes) == (path.replace(":", "."), [{"a": 1}])


def test_an_inert_object_cannot_be_called() -> None:
    with pytest.raises(DAMAGE_ERRORS, match="not callable"):
        safe_unpickler.load(io.BytesIO(named("argparse:Namespace") + b")R)R."))


def test_call_of_a_torch_function_is_not_executed() -> None:
    start = b"\x80\x02}X\x03\x00\x00\x00actctorch.nn.functional\nrelu\n"
    assert "act" in safe_unpickler.load(io.BytesIO(start + b"s."))
    assert isinstance(safe_unpickler.load(io.BytesIO(start + b")Rs."))["act"], Inert)


@in_each_format
def test_configuration_beside_the_tensors_becomes_inert(
    stored: Callable[[Any], bytes], file: Path
) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    content: dict[str, Any] = {
        "weights": OrderedDict(a=tensor, b=torch.nn.Parameter(tensor.T)),
        "args": argparse.Namespace(arch="resnet18", where=Path("x")),
        "when": datetime.datetime(2020, 1, 1),
        "counts": defaultdict(list, a=[1]),
        "set": {1, 2},
        "random": np.random.RandomState(0),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "shape": torch.Size([2, 3]),
        "score": np.float64(1.5),
        "bytes": b"\xff",
    }
    contents = read(stored(content), file)
    assert contents.values["counts.a.0"] == 1
    assert (contents.values["shape.0"], contents.values["shape.1"]) == (2, 3)
    assert torch.equal(contents.tensors["weights.a"], tensor)
    assert torch.equal(contents.tensors["weights.b"], tensor.T)


def test_a_module_beside_the_weights_does_not_refuse_them(file: Path) -> None:
    content = {"loss": torch.nn.CrossEntropyLoss(torch.ones(3)), "net": {"a": torch.ones(2)}}
    assert list(read(zip_bytes(content), file).tensors) == ["net.a"]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_arrays_are_read_as_numpy_reads_them(protocol: int, file: Path) -> None:
    arrays: dict[str, Any] = {}
    for dtype in ("<f4", ">f4", "<f2", "<f8", "<i8", "|b1", "|u1"):
        array = np.asfortranarray(np.arange(6).reshape(2, 3)).astype(dtype)
        arrays |= {f"columns {dtype}": array, f"rows {dtype}": np.ascontiguousarray(array)}
        arrays[f"none {dtype}"] = array[0, 1:2][0:0]
    tensors = read(pickle.dumps(arrays, protocol=protocol), file).tensors
    for name, expected in arrays.items():
        assert np.array_equal(tensors[name].numpy(), expected), name


class Args:
    """A class of a user's script."""

    def __init__(self, *fields: object) -> None:
        self.fields = fields


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Args is a class of the program that runs."""
    monkeypatch.setattr(sys.modules["__main__"], "Args", Args, raising=False)
    monkeypatch.setattr(Args, "__module__", "__main__")


@in_each_format
def test_tensors_inside_an_object_of_an_unknown_class_are_refused_with_its_name(
    stored: Callable[[Any], bytes], script: None, file: Path
) -> None:
    file.write_bytes(stored({"net": Args(torch.ones(3))}))
    with pytest.raises(BackboneError, match=r"__main__\.Args.*state_dict"):
        load_backbone(file)


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
"""Values that torch and NumPy rebuild by functions unknown to the reader."""


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("stored", [zip_bytes, legacy_bytes])
def test_tensors_beside_values_that_unknown_functions_make_are_read(
    stored: Callable[[object], bytes], file: Path
) -> None:
    created = {name: make() for name, make in MADE_BY_FUNCTIONS.items()}
    contents = read(stored({"statistics": created, "net": {"a": torch.ones(2)}}), file)
    assert list(contents.tensors) == ["net.a"]
    assert sorted(contents.opaque) == sorted(f"statistics.{name}" for name in created)


def test_unread_weight_refuses_the_file(script: None, file: Path) -> None:
    plain, sparse = another(weights()), torch.eye(3).to_sparse()
    conv, odd = "layer1.0.conv1.weight", "layer1.0.attention"
    refused: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        *(
            ({"net": {**plain, conv: MADE_BY_FUNCTIONS[kind]()}}, (f"not read net.{conv}", "_rebu"))
            for kind in ("quantized", "without values", "of a subclass")
        ),
        *((below(prefix, {**plain, odd: sparse}), (odd, "_rebuild")) for prefix in ("", "module.")),
        # a momentum copy does not replace its query encoder
        (
            {f"encoder_q.{n}": sparse for n in plain} | below("encoder_k.", plain),
            ("not read encoder_q.conv1.weight",),
        ),
        ({"net": {**plain, "b": Call(Args, torch.ones(3))}}, ("net.b ", "__main__.Args")),
        ({"model": nn.Linear(2, 2), "adam": {"0": torch.ones(2)}}, ("torch.nn.modules.linear",)),
    ]
    for content, args in refused:
        refuse(content, file, *args)


def test_tensor_subclass_is_read_only_if_torch_rebuilds_it(file: Path) -> None:
    name, content = "layer1.0.conv1.weight", weights()
    content[name] = content[name].as_subclass(Plain)
    assert load(content, file).sha256
    content[name] = Tensor._make_wrapper_subclass(Wrapped, content[name].shape)
    refuse(content, file, f"{Wrapped.__module__}.{Wrapped.__qualname__}")
