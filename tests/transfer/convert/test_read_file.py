"""Formats are recognized by content and read as torch reads them; damage is explained."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as save_safetensors
from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.from_public import plain_floats
from transfer.convert.read_file import read_file

BASE = torch.arange(24.0)

CONTENT: dict[str, Tensor] = {
    "float": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    "transposed": BASE.reshape(4, 6).T,
    "part of a shared storage": BASE[5:20:3],
    "scalar": torch.tensor(3),
    "empty": torch.empty(0, 5),
    "half": torch.ones(3, dtype=torch.float16),
    "bfloat": torch.ones(3, dtype=torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "complex": torch.ones(2, dtype=torch.complex64),
}


def zip_bytes(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def legacy_bytes(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def safetensors_bytes(content: dict[str, Tensor]) -> bytes:
    known = {n: t.clone().contiguous() for n, t in content.items() if not t.is_complex()}
    return bytes(save_safetensors(known))


FORMATS: dict[str, Callable[[Any], bytes]] = {
    "zip": zip_bytes,
    "legacy": legacy_bytes,
    "pickle": pickle.dumps,
    "safetensors": safetensors_bytes,
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_gives_back_each_tensor(name: str, tmp_path: Path) -> None:
    (tmp_path / "file.anything").write_bytes(FORMATS[name](CONTENT))
    contents = read_file(tmp_path / "file.anything")
    for key, stored in contents.tensors.items():
        expected = CONTENT[key]
        assert torch.equal(stored, expected)
        assert (stored.dtype, stored.shape) == (expected.dtype, tuple(expected.shape))
        assert stored.numel() == expected.numel()
    assert CONTENT.keys() - contents.tensors.keys() <= {"complex"}


def test_names_follow_the_nesting_and_plain_values_are_kept(tmp_path: Path) -> None:
    content = {"a": {"b.c": torch.ones(1)}, "list": [torch.ones(2), 5], "epoch": 3, "arch": "x"}
    (tmp_path / "file").write_bytes(zip_bytes(content))
    contents = read_file(tmp_path / "file")
    assert list(contents.tensors) == ["a.b.c", "list.0"]
    assert contents.values == {"list.1": 5, "epoch": 3, "arch": "x"}


def test_a_cycle_ends(tmp_path: Path) -> None:
    content: dict[str, Any] = {"weight": torch.ones(1)}
    content["self"] = content
    (tmp_path / "file").write_bytes(zip_bytes(content))
    assert list(read_file(tmp_path / "file").tensors) == ["weight"]


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(zip_bytes({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}))
    with pytest.raises(BackboneError, match=r"two tensors are called 'a\.b'"):
        read_file(tmp_path / "file")


def test_a_flipped_bit_in_a_zip_file_is_noticed(tmp_path: Path) -> None:
    content = bytearray(zip_bytes({"weight": torch.ones(1000)}))
    content[content.index(b"\x80?\x00\x00\x80?") + 40] ^= 1
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BackboneError, match="checksum"):
        read_file(tmp_path / "file")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="no such file"):
        read_file(tmp_path / "absent.pth")
    with pytest.raises(BackboneError, match="a folder"):
        read_file(tmp_path)


def test_a_safetensors_header_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 8]}}).encode()
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(BackboneError, match="safetensors"):
        read_file(tmp_path / "file")


OTHER_TYPES = {
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "C64": torch.complex64,
}


def test_safetensors_of_types_without_weights_are_read(tmp_path: Path) -> None:
    for name, dtype in OTHER_TYPES.items():
        tensor = torch.tensor([1, 0, 2]).to(dtype)
        (tmp_path / "file").write_bytes(save_safetensors({"w": tensor}))
        assert f'"{name}"'.encode() in (tmp_path / "file").read_bytes()
        stored = read_file(tmp_path / "file").tensors["w"]
        assert stored.dtype == tensor.dtype
        assert torch.equal(stored.to(torch.complex64), tensor.to(torch.complex64))


def test_a_repeated_value_is_read_where_it_fits_and_refused_where_it_is_huge(
    tmp_path: Path,
) -> None:
    content = {"few": torch.ones(1).expand(3, 4), "many": torch.ones(1).expand(10**12)}
    (tmp_path / "file").write_bytes(zip_bytes(content))
    tensors = read_file(tmp_path / "file").tensors
    assert torch.equal(tensors["few"], torch.ones(3, 4))
    assert tensors["many"].numel() == 10**12
    with pytest.raises(BackboneError, match="repeats stored values"):
        plain_floats("many", tensors["many"])


def test_two_entries_of_one_name_in_a_zip_file_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "file", "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("net/data.pkl", pickle.dumps({}))
    with pytest.raises(BackboneError, match=r"two entries.*data\.pkl"):
        read_file(tmp_path / "file")


def test_entries_of_a_zip_file_that_share_bytes_are_refused(tmp_path: Path) -> None:
    content = bytearray(zip_bytes({"a": torch.ones(3), "b": torch.zeros(3)}))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        offsets = [e.header_offset for e in archive.infolist() if "/data/" in e.filename]
    # in the directory, let the second storage lie where the first one does
    place = content.rindex(offsets[1].to_bytes(4, "little"))
    content[place : place + 4] = offsets[0].to_bytes(4, "little")
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BackboneError, match="checksum"):
        read_file(tmp_path / "file")
