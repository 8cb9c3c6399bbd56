"""What is no checkpoint of a ResNet is named as what it is, with the way to one that is."""

import bz2
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from tests.transfer.convert.damage import zip_bytes
from transfer.backbone import BackboneError, load_backbone


def archive(entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip archive with these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tar_bytes() -> bytes:
    """Return a tar archive as torch wrote in 2017, without the mark of later ones."""
    header = bytearray(tarfile.TarInfo("\x80\x02\x8a\nl").tobuf(tarfile.GNU_FORMAT))
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    header[: len(magic)], header[257:265] = magic, bytes(8)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    return bytes(header) + bytes(1024)


def numpy_bytes() -> bytes:
    """Return what NumPy writes."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def other_files() -> dict[str, tuple[bytes, str]]:
    """Return content and a fact of the refusal by name."""
    network = torchvision.models.resnet18()
    some, program = torch.zeros(3), {"net/data.pkl": pickle.dumps({"zeros": [0] * 1000})}
    whole = dict(network.state_dict())
    deep = {**whole, "conv1.0.weight": torch.zeros(32, 3, 3, 3)}
    deep["layer1.0.conv1.weight"] = torch.zeros(64, 64, 1, 1)
    return {
        "joblib": (b"\x80\x04\x95\x00cjoblib.numpy_pickle\nNumpyArrayWrapper\n.", "joblib"),
        "joblib, compressed": (b"x\x9c" + bytes(50), "joblib"),
        "parameters": (zip_bytes(dict(network.named_parameters())), "parameters alone"),
        "list of parameters": (zip_bytes(list(network.parameters())), "without names"),
        "FSDP": (zip_bytes({"_fsdp_wrapped_module._flat_param": some}), "FSDP"),
        "DeepSpeed": (zip_bytes({"single_partition_of_fp32_groups": [some]}), "zero_to_fp32"),
        "Caffe2": (pickle.dumps({"blobs": {"res2_0_branch2a_w": np.zeros(3)}}), "Caffe2"),
        "transformers": (zip_bytes({"resnet.encoder.stages.0.layers.0.w": some}), "hf:FOLDER"),
        "timm": (zip_bytes(deep), "--encoder timm:"),
        "ViT": (zip_bytes({"cls_token": some, "pos_embed": some}), "--encoder"),
        "zip in zip": (archive({"model.pth": zip_bytes(whole)}), "unpack"),
        "npz": (archive({"weight.npy": numpy_bytes()}), ".npz"),
        "npy": (numpy_bytes(), "NumPy"),
        "ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x052.0.0" + bytes(90), "ONNX"),
        "bzip2": (bz2.compress(b"abc"), "bzip2"),
        "xz": (lzma.compress(b"abc"), "xz"),
        "zstd": (b"\x28\xb5\x2f\xfd" + bytes(90), "zstd"),
        "gzip": (b"\x1f\x8b\x08\x00" + bytes(40), "unpack"),
        "empty": (b"", "is empty"),
        "web page": (b"<!DOCTYPE html><html>404</html>", "web page"),
        "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        "text": (b"hello, this is no checkpoint at all", "no checkpoint"),
        "image": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(40), "no checkpoint"),
        "torchscript": (archive(program | {"net/code/__torch__.py": b"def"}), "TorchScript"),
        "constants of torchscript": (archive(program | {"net/constants.pkl": b""}), "TorchScript"),
        "tar": (tar_bytes(), "tar archive"),
        "compressed": (archive(program, zipfile.ZIP_DEFLATED), "compressed"),
    }


FOLDERS = {
    "dcp/.metadata": "dcp_to_torch_save",
    "deepspeed/global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt": "zero_to_fp32",
    "hf/config.json": "--encoder hf:",
}
"""A file in a folder that holds a checkpoint in parts, and a fact of the folder's refusal."""


def test_a_refusal_says_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    facts = {}
    for name, fact in FOLDERS.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        facts[name.partition("/")[0]] = fact
    for name, (content, fact) in other_files().items():
        (tmp_path / name).write_bytes(content)
        facts[name] = fact
    wrong = []
    for name, fact in facts.items():
        with pytest.raises(BackboneError) as refused:
            load_backbone(tmp_path / name)
        if fact not in str(refused.value):
            wrong.append((name, str(refused.value)))
    assert wrong == []
