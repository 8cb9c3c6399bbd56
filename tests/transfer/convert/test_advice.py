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

from transfer.backbone import BackboneError, load_backbone


def torch_bytes(content: object) -> bytes:
    """Return what torch.save writes."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    """Return a zip archive with one entry."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def compressed_bytes() -> bytes:
    """Return a zip file in torch's form that is compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/data.pkl", pickle.dumps({"zeros": [0] * 1000}))
    return buffer.getvalue()


def torchscript_bytes(name: str) -> bytes:
    """Return a zip file in torch's form with a program."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps({}))
        archive.writestr(f"net/{name}", "def forward(self): ...")
    return buffer.getvalue()


def tar_bytes() -> bytes:
    """Return a tar archive as torch wrote in 2017, without the mark of later ones."""
    header = bytearray(tarfile.TarInfo("\x80\x02\x8a\nl").tobuf(tarfile.GNU_FORMAT))
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    header[: len(magic)], header[257:265] = magic, bytes(8)
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    return bytes(header) + bytes(1024)


def numpy_bytes(several: bool) -> bytes:
    """Return what NumPy writes."""
    buffer = io.BytesIO()
    if several:
        np.savez(buffer, weight=np.zeros(3))
    else:
        np.save(buffer, np.zeros(3))
    return buffer.getvalue()


def other_files() -> dict[str, tuple[bytes, str]]:
    """Return content and a fact of the refusal by name."""
    network = torchvision.models.resnet18()
    some = torch.zeros(3)
    whole = dict(network.state_dict())
    deep = {**whole, "conv1.0.weight": torch.zeros(32, 3, 3, 3)}
    deep["layer1.0.conv1.weight"] = torch.zeros(64, 64, 1, 1)
    return {
        "joblib": (b"\x80\x04\x95\x00cjoblib.numpy_pickle\nNumpyArrayWrapper\n.", "joblib"),
        "joblib, compressed": (b"x\x9c" + bytes(50), "joblib"),
        "parameters": (torch_bytes(dict(network.named_parameters())), "parameters alone"),
        "list of parameters": (torch_bytes(list(network.parameters())), "without names"),
        "FSDP": (torch_bytes({"_fsdp_wrapped_module._flat_param": some}), "FSDP"),
        "DeepSpeed": (torch_bytes({"single_partition_of_fp32_groups": [some]}), "zero_to_fp32"),
        "Caffe2": (pickle.dumps({"blobs": {"res2_0_branch2a_w": np.zeros(3)}}), "Caffe2"),
        "transformers": (torch_bytes({"resnet.encoder.stages.0.layers.0.w": some}), "hf:FOLDER"),
        "timm": (torch_bytes(deep), "--encoder timm:"),
        "zip in zip": (zipped("model.pth", torch_bytes(whole)), "unpack"),
        "npz": (numpy_bytes(several=True), ".npz"),
        "npy": (numpy_bytes(several=False), "NumPy"),
        "ONNX": (b"\x08\x08\x12\x07pytorch\x1a\x052.0.0" + bytes(90), "ONNX"),
        "bzip2": (bz2.compress(b"abc"), "bzip2"),
        "xz": (lzma.compress(b"abc"), "xz"),
        "zstd": (b"\x28\xb5\x2f\xfd" + bytes(90), "zstd"),
        "empty": (b"", "is empty"),
        "web page": (b"<!DOCTYPE html><html>404</html>", "web page"),
        "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git lfs pull"),
        "text": (b"hello, this is no checkpoint at all", "no checkpoint"),
        "image": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(40), "no checkpoint"),
        "gzip": (b"\x1f\x8b\x08\x00" + bytes(40), "unpack"),
        "torchscript": (torchscript_bytes("code/__torch__.py"), "TorchScript"),
        "constants of torchscript": (torchscript_bytes("constants.pkl"), "TorchScript"),
        "tar": (tar_bytes(), "tar archive"),
        "compressed": (compressed_bytes(), "compressed"),
        "ViT": (torch_bytes({"cls_token": some, "pos_embed": some}), "--encoder"),
    }


def folders(place: Path) -> dict[str, str]:
    """Make folders that hold checkpoints in parts; return a fact of each refusal."""
    facts = {
        "dcp/.metadata": "dcp_to_torch_save",
        "deepspeed/global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt": "zero_to_fp32",
        "hf/config.json": "--encoder hf:",
    }
    for name in facts:
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("{}")
    return {name.partition("/")[0]: fact for name, fact in facts.items()}


def test_a_refusal_says_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    facts = folders(tmp_path)
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
