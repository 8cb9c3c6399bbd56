"""No opcode of a pickle reaches code, in any container; plain data of real checkpoints is read."""

import argparse
import datetime
import io
import os
import pickle
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transfer.backbone import BackboneError, load_backbone
from transfer.convert import inert
from transfer.convert.child import DAMAGED
from transfer.convert.inert import Inert
from transfer.convert.read_file import read_file


class Payload:
    """Writes a file when unpickled in the ordinary way."""

    def __init__(self, marker: Path) -> None:
        self.command = f"touch {marker}"

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def save_pickle(content: object, path: Path, protocol: int = 4) -> None:
    path.write_bytes(pickle.dumps(content, protocol))


SAVE: list[Callable[[object, Path], None]] = [
    torch.save,
    partial(torch.save, _use_new_zipfile_serialization=False),
    save_pickle,
    partial(save_pickle, protocol=0),  # of Python 2
]


@pytest.mark.parametrize("save", SAVE)
@pytest.mark.parametrize("place", ["top", "beside", "inside an allowed class"])
def test_a_payload_is_refused_by_name_and_never_runs(
    save: Callable[[object, Path], None], place: str, tmp_path: Path
) -> None:
    payload = Payload(tmp_path / "marker")
    content = {
        "top": payload,
        "beside": {"state_dict": {"conv1.weight": torch.ones(3)}, "args": [payload]},
        "inside an allowed class": argparse.Namespace(command=payload),
    }[place]
    save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"system.*code execution"):
        load_backbone(tmp_path / "file")
    assert not (tmp_path / "marker").exists()


def test_the_payload_of_these_tests_does_run_in_the_ordinary_reader(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "marker")))
    assert (tmp_path / "marker").exists()


COMMAND = b"X\x04\x00\x00\x00true"
"""The text "true", as an opcode."""

OPCODES = {
    "GLOBAL and REDUCE": b"\x80\x02cos\nsystem\n" + COMMAND + b"\x85R.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93" + COMMAND + b"\x85R.",
    "INST": b"(S'true'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'true'\no.",
    "eval": b"\x80\x02cbuiltins\neval\n" + COMMAND + b"\x85R.",
    "eval of Python 2": b"c__builtin__\neval\n(S'true'\ntR.",
    "a dotted way out of an allowed class": (
        b"\x80\x04\x8c\x0bcollections\x8c\x20OrderedDict.fromkeys.__globals__\x93."
    ),
    "torch.load": b"\x80\x02ctorch\nload\n" + COMMAND + b"\x85R.",
    "load of NumPy": b"\x80\x02cnumpy\nload\n" + COMMAND + b"\x85R.",
    "a compiled graph": b"\x80\x02ctorch.fx.graph_module\nreduce_graph_module\n)R.",
    "getattr of a module": b"\x80\x02cbuiltins\ngetattr\n"
    + COMMAND
    + b"X\x05\x00\x00\x00upper\x86R.",
    "import": b"\x80\x02cimportlib\nimport_module\n" + COMMAND + b"\x85R.",
}


def test_what_stands_for_a_global_cannot_be_altered_by_the_pickle() -> None:
    state = b"N}X\x05\x00\x00\x00_callK\x01s\x86b."  # (None, {"_call": 1}) sets attributes
    for name in (b"collections\nOrderedDict", b"argparse\nNamespace"):
        with pytest.raises(DAMAGED):
            inert.load(io.BytesIO(b"\x80\x02c" + name + b"\n" + state))


def test_inert_objects_cannot_be_called() -> None:
    with pytest.raises(DAMAGED, match="not callable"):
        inert.load(io.BytesIO(b"\x80\x02cargparse\nNamespace\n)R)R."))


@pytest.mark.parametrize("save", SAVE)
def test_configuration_beside_the_tensors_becomes_inert(
    save: Callable[[object, Path], None], tmp_path: Path
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
    save(content, tmp_path / "file")
    contents = read_file(tmp_path / "file")
    assert contents.values["counts.a.0"] == 1
    assert (contents.values["shape.0"], contents.values["shape.1"]) == (2, 3)
    assert torch.equal(contents.tensors["weights.a"], tensor)
    assert torch.equal(contents.tensors["weights.b"], tensor.T)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_arrays_are_read_as_numpy_reads_them(protocol: int, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {}
    for dtype in ("<f4", ">f4", "<f2", "<f8", "<i8", "|b1", "|u1"):
        array = np.asfortranarray(np.arange(6).reshape(2, 3)).astype(dtype)
        arrays |= {f"columns {dtype}": array, f"rows {dtype}": np.ascontiguousarray(array)}
        arrays[f"none {dtype}"] = array[0, 1:2][0:0]
    (tmp_path / "file").write_bytes(pickle.dumps(arrays, protocol=protocol))
    tensors = read_file(tmp_path / "file").tensors
    for name, expected in arrays.items():
        assert np.array_equal(tensors[name].numpy(), expected), name


def test_a_tensor_beyond_its_numbers_is_refused() -> None:
    """The values that as_strided would read lie in another tensor, or in none."""
    content = pickle.dumps(torch.ones(4), protocol=2)
    size = b"K\x04\x85"
    assert content.count(size) >= 1
    with pytest.raises(DAMAGED, match="storage"):
        inert.load(io.BytesIO(content.replace(size, b"K\x05\x85")))


class Args:
    """A class of a user's script."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def named_main(content: object, save: Callable[[object, Path], None], path: Path) -> None:
    """Save `content` as a script would whose classes are those of this module."""
    main = sys.modules["__main__"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "Args", Args, raising=False)
        patch.setattr(Args, "__module__", "__main__")
        save(content, path)


@pytest.mark.parametrize("save", SAVE)
def test_tensors_inside_an_object_of_an_unknown_class_are_refused_with_its_name(
    save: Callable[[object, Path], None], tmp_path: Path
) -> None:
    named_main({"net": Args(weight=torch.ones(3))}, save, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"__main__\.Args.*state_dict"):
        read_file(tmp_path / "file")


def test_a_weight_that_unknown_code_rebuilds_is_refused_although_others_are_plain(
    weights: Callable[..., dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    class Rebuilt:
        def __reduce__(self) -> tuple[Any, ...]:
            return Args, (torch.ones(3),)

    content = {"net": {**weights(), "b": Rebuilt()}}
    named_main(content, torch.save, tmp_path / "file")
    with pytest.raises(BackboneError, match=r"net\.b .*__main__\.Args"):
        load_backbone(tmp_path / "file")


def test_a_module_beside_the_weights_does_not_refuse_them(tmp_path: Path) -> None:
    content = {"loss": torch.nn.CrossEntropyLoss(torch.ones(3)), "net": {"a": torch.ones(2)}}
    torch.save(content, tmp_path / "file")
    assert list(read_file(tmp_path / "file").tensors) == ["net.a"]


def test_a_function_of_torch_is_a_value_and_its_call_an_inert_object() -> None:
    named = b"\x80\x02}X\x03\x00\x00\x00actctorch.nn.functional\nrelu\n"
    assert "act" in inert.load(io.BytesIO(named + b"s."))
    assert isinstance(inert.load(io.BytesIO(named + b")Rs."))["act"], Inert)


LIBRARY_CLASSES = (
    ("collections", "UserDict"),
    ("code.utils", "Config"),
    ("types", "SimpleNamespace"),
    ("ipaddress", "IPv4Address"),
    ("string", "Template"),
    ("json.encoder", "JSONEncoder"),
    ("site.settings", "make_settings"),
    ("trace.utils", "Tracker.State"),
    ("test.options", "Config"),
    ("builtins", "ValueError"),
)


def test_classes_of_modules_that_only_sound_dangerous_are_inert() -> None:
    state = b"}X\x01\x00\x00\x00aK\x01sb"
    for module, name in LIBRARY_CLASSES:
        made = inert.load(io.BytesIO(_stored(module, name) + b")\x81" + state + b"."))
        assert isinstance(made, Inert)
        assert (made.path, made.parts) == (f"{module}.{name}", [{"a": 1}])


RUNNING = (
    ("os", "system"),
    ("os.path", "Config"),
    ("posix", "Config"),
    ("code", "InteractiveConsole"),
    ("subprocess", "Popen"),
    ("timeit", "Timer"),
    ("types", "FunctionType"),
    ("types", "CodeType"),
    ("ctypes", "CDLL"),
    ("pickle", "Unpickler"),
    ("builtins", "eval"),
    ("__builtin__", "execfile"),
    ("operator", "attrgetter"),
    ("importlib.machinery", "SourceFileLoader"),
    ("concurrent.futures.process", "ProcessPoolExecutor"),
    ("multiprocessing.pool", "Pool"),
    ("collections", "namedtuple"),
    ("collections", "UserDict.__init__.__globals__"),
    ("json", "loads"),
)


def test_what_runs_code_is_refused_also_where_it_is_a_class() -> None:
    calls = {name: _stored(module, name) + b")R." for module, name in RUNNING}
    for program in (OPCODES | calls).values():
        with pytest.raises(BackboneError, match="code execution"):
            inert.load(io.BytesIO(program))


def _stored(module: str, name: str) -> bytes:
    """Return the start of a pickle that names a global."""
    words = (word.encode() for word in (module, name))
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(w)]) + w for w in words) + b"\x93"
