"""Formats are recognized by content and read as torch reads them.

Damage is explained.
"""

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

from tests.transfer.encoders.conftest import read
from tests.transfer.encoders.damage import legacy_bytes, zip_bytes
from transfer.encoders.architectures import BackboneError

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


def safetensors_bytes(content: dict[str, Tensor]) -> bytes:
    return bytes(save_safetensors({n: t.clone().contiguous() for n, t in content.items()}))


FORMATS: list[Callable[[Any], bytes]] = [zip_bytes, legacy_bytes, pickle.dumps, safetensors_bytes]


@pytest.mark.parametrize("stored", FORMATS)
def test_each_format_gives_back_each_tensor(stored: Callable[[Any], bytes], file: Path) -> None:
    tensors = read(stored(CONTENT), file).tensors
    assert tensors.keys() == CONTENT.keys()
    for name, expected in CONTENT.items():
        assert torch.equal(tensors[name], expected)
        assert tensors[name].dtype == expected.dtype


def test_safetensors_of_types_without_weights_are_read(file: Path) -> None:
    for dtype in (torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = torch.tensor([1, 0, 2]).to(dtype)
        stored = read(safetensors_bytes({"w": tensor}), file).tensors["w"]
        assert stored.dtype == dtype
        assert torch.equal(stored.float(), tensor.float())


def test_names_follow_the_nesting_and_plain_values_are_kept(file: Path) -> None:
    content: dict[str, Any] = {"a": {"b.c": torch.ones(1)}, "list": [torch.ones(2), 5], "arch": "x"}
    content["cycle"] = content
    contents = read(zip_bytes(content), file)
    assert list(contents.tensors) == ["a.b.c", "list.0"]
    assert contents.values == {"list.1": 5, "arch": "x"}


def flipped_bit() -> bytes:
    content = bytearray(zip_bytes({"weight": torch.ones(1000)}))
    content[content.index(b"\x80?\x00\x00\x80?") + 40] ^= 1
    return bytes(content)


def entries_that_share_bytes() -> bytes:
    content = bytearray(zip_bytes({"a": torch.ones(3), "b": torch.zeros(3)}))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        offsets = [e.header_offset for e in archive.infolist() if "/data/" in e.filename]
    # in the directory, let the second storage lie where the first one does
    location = content.rindex(offsets[1].to_bytes(4, "little"))
    content[location : location + 4] = offsets[0].to_bytes(4, "little")
    return bytes(content)


def safetensors_that_lie_about_sizes() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


def safetensors_with_deep_fields() -> bytes:
    fields = {"format": "ssl-backbone/1", "input": "[" * 100_000, "made_by": "{}"}
    return bytes(save_safetensors({"w": torch.ones(1)}, fields))


def one_name_for(tensor: Tensor) -> bytes:
    """Store a tensor, and another one of the same name."""
    return pickle.dumps({"a.b": torch.ones(2), "a": {"b": tensor}})


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        (flipped_bit, "checksum"),
        (entries_that_share_bytes, "checksum"),
        (safetensors_that_lie_about_sizes, "safetensors"),
        (safetensors_with_deep_fields, "recursion"),
        (lambda: one_name_for(torch.ones(2)), r"two tensors.*a\.b"),
        (lambda: one_name_for(torch.eye(2).to_sparse()), r"both called a\.b"),
    ],
)
def test_a_damaged_file_is_refused(damaged: Callable[[], bytes], words: str, file: Path) -> None:
    content = damaged()
    with pytest.raises(BackboneError, match=words):
        read(content, file)
