"""No opcode of a pickle reaches code, in any container; plain data of real checkpoints is read."""

import argparse
import copyreg
import datetime
import io
import os
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transfer.backbone import BackboneError, load_backbone
from transfer.convert.read_file import read_file
from transfer.convert.safe_pickle import Inert, NeedsCodeError, load_pickle
from transfer.convert.torch_file import read_nested


class Payload:
    """Writes a file when unpickled in the ordinary way."""

    def __init__(self, marker: Path) -> None:
        self.command = f"touch {marker}"

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


def save_zip(content: object, path: Path) -> None:
    torch.save(content, path)


def save_legacy(content: object, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def save_pickle(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


def save_pickle_of_python_2(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content, protocol=0))


SAVE = [save_zip, save_legacy, save_pickle, save_pickle_of_python_2]


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
    "getattr of a module": b"\x80\x02cbuiltins\ngetattr\n"
    + COMMAND
    + b"X\x05\x00\x00\x00upper\x86R.",
    "import": b"\x80\x02cimportlib\nimport_module\n" + COMMAND + b"\x85R.",
}


@pytest.mark.parametrize("name", OPCODES)
def test_each_opcode_that_names_a_global_is_guarded(name: str) -> None:
    with pytest.raises(NeedsCodeError):
        load_pickle(io.BytesIO(OPCODES[name]))


def test_registered_extension_codes_are_guarded() -> None:
    copyreg.add_extension("os", "getcwd", 240)
    try:
        with pytest.raises(NeedsCodeError, match=r"getcwd"):
            load_pickle(io.BytesIO(b"\x80\x02\x82\xf0."))
    finally:
        copyreg.remove_extension("os", "getcwd", 240)


BUILDS = {
    "a function": b"ccollections\nOrderedDict\n",
    "a class": b"cargparse\nNamespace\n",
    "a tensor type": b"ctorch\nFloatStorage\n",
    "getattr": b"cbuiltins\ngetattr\n",
}


@pytest.mark.parametrize("name", BUILDS)
def test_what_stands_for_a_global_cannot_be_altered_by_the_pickle(name: str) -> None:
    state = b"N}X\x05\x00\x00\x00_callK\x01s\x86b."  # (None, {"_call": 1}), which sets attributes
    with pytest.raises(BackboneError, match="damaged"):
        load_pickle(io.BytesIO(b"\x80\x02" + BUILDS[name] + state))


def test_inert_objects_cannot_be_called() -> None:
    with pytest.raises(BackboneError, match="not callable"):
        load_pickle(io.BytesIO(b"\x80\x02cargparse\nNamespace\n)R)R."))


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
    assert isinstance(contents.tree["args"], Inert)
    assert contents.tree["counts"] == {"a": [1]}
    assert contents.tree["shape"] == (2, 3)
    assert torch.equal(contents.tensors["weights.a"].read(), tensor)
    assert torch.equal(contents.tensors["weights.b"].read(), tensor.T)


def test_logs_that_name_methods_of_their_own_class_are_inert() -> None:
    """Pickle as mmengine's history buffers do: getattr(HistoryBuffer, "mean")."""
    by_name = b"cbuiltins\ngetattr\ncmmengine.logging.history_buffer\nHistoryBuffer\n"
    assert isinstance(
        load_pickle(io.BytesIO(b"\x80\x02" + by_name + b"X\x04\x00\x00\x00mean\x86R.")), Inert
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "<i8", "|b1", "|u1"])
def test_numpy_arrays_are_read_as_numpy_reads_them(
    protocol: int, dtype: str, tmp_path: Path
) -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3)).astype(dtype)
    arrays = {"columns": array, "rows": np.ascontiguousarray(array), "none": array[0, 1:2][0:0]}
    (tmp_path / "file").write_bytes(pickle.dumps(arrays, protocol=protocol))
    tensors = read_file(tmp_path / "file").tensors
    for name, expected in arrays.items():
        assert np.array_equal(tensors[name].read().numpy(), expected)


def test_a_pickled_model_is_refused_with_the_class_and_the_way_out(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "file")
    with pytest.raises(BackboneError, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
        load_backbone(tmp_path / "file")


def test_a_tensor_beyond_its_numbers_is_refused() -> None:
    """The values that as_strided would read lie in another tensor, or in none."""
    content = pickle.dumps(torch.ones(4), protocol=2)
    size = b"K\x04\x85"
    assert content.count(size) >= 1
    with pytest.raises(BackboneError, match="reaches value"):
        read_bytes(content.replace(size, b"K\x05\x85"))


def read_bytes(content: bytes) -> Any:
    return load_pickle(io.BytesIO(content), nested=read_nested)
