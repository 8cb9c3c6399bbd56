"""Files with several networks, or without a ResNet, are explained."""

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
from torch import Tensor

from tests.transfer.encoders.conftest import Weights, another, below, linear, load, refuse, weights
from tests.transfer.encoders.damage import archive, zip_bytes
from transfer.__main__ import main
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder
from transfer.encoders.opening import load_backbone, open_file


def tar_bytes() -> bytes:
    """Return a tar archive as torch wrote in 2017."""
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
        "parameters": (zip_bytes(dict(network.named_parameters())), "only parameters"),
        "list of parameters": (zip_bytes(list(network.parameters())), "without names"),
        "FSDP": (zip_bytes({"_fsdp_wrapped_module._flat_param": some}), "FSDP"),
        "DeepSpeed": (zip_bytes({"single_partition_of_fp32_groups": [some]}), "zero_to_fp32"),
        "Caffe2": (pickle.dumps({"blobs": {"res2_0_branch2a_w": np.zeros(3)}}), "Caffe2"),
        "transformers": (zip_bytes({"resnet.encoder.stages.0.layers.0.w": some}), "hf:FOLDER"),
        "timm": (zip_bytes(deep), "encoder='timm:"),
        "CLIP": (zip_bytes({**deep, "attnpool.positional_embedding": some}), "attention pooling"),
        "ViT": (zip_bytes({"cls_token": some, "pos_embed": some}), "encoder='timm:"),
        "zip in zip": (archive({"model.pth": zip_bytes(whole)}), "Unpack"),
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
        "text": (b"hello, this is no checkpoint at all", "not a checkpoint"),
        "image": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(40), "not a checkpoint"),
        "torchscript": (archive(program | {"net/code/__torch__.py": b"def"}), "TorchScript"),
        "constants of torchscript": (archive(program | {"net/constants.pkl": b""}), "TorchScript"),
        "tar": (tar_bytes(), "tar archive"),
        "compressed": (archive(program, zipfile.ZIP_DEFLATED), "compressed"),
    }


FOLDERS = {
    "dcp/.metadata": "dcp_to_torch_save",
    "deepspeed/global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt": "zero_to_fp32",
    "hf/config.json": "encoder='hf:",
}
"""Files of checkpoints in several parts, and words of the refusal."""


def test_a_refusal_says_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    fields = {}
    for name, fact in FOLDERS.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        fields[name.partition("/")[0]] = fact
    for name, (content, fact) in other_files().items():
        (tmp_path / name).write_bytes(content)
        fields[name] = fact
    wrong = []
    for name, fact in fields.items():
        with pytest.raises(BackboneError) as refused:
            load_backbone(tmp_path / name)
        if fact not in str(refused.value):
            wrong.append((name, str(refused.value)))
    assert wrong == []


@pytest.fixture
def distilled(file: Path) -> Path:
    """A ResNet-18 that learned from a ResNet-34, in one file."""
    teacher = another(weights("resnet34"))
    content = {**below("student.backbone.", weights()), **below("teacher.backbone.", teacher)}
    torch.save(content, file)
    return file


def is_resnet18(backbone: Encoder, expected: Weights) -> bool:
    conv1 = backbone.state_dict["conv1.weight"]
    return backbone.arch == "resnet18" and torch.equal(conv1, expected["conv1.weight"])


@pytest.mark.parametrize(
    ("branch", "words"),
    [("backbone", "exactly one"), ("momentum", "exactly one"), ("", "2 complete networks")],
)
def test_a_branch_that_names_not_one_network_is_refused_with_the_list(
    branch: str, words: str, distilled: Path
) -> None:
    networks = r"student\.backbone\. \(resnet18.*teacher\.backbone\. \(resnet34"
    with pytest.raises(BackboneError, match=rf"{words}.*{networks}"):
        load_backbone(distilled, branch=branch)


@pytest.mark.parametrize("branch", ["net", "net."])
def test_a_whole_prefix_goes_before_a_part_of_another(branch: str, file: Path) -> None:
    content = {**below("net.", weights()), **below("target.net.", another(weights()))}
    torch.save(content, file)
    assert is_resnet18(load_backbone(file, branch=branch), weights())


def test_the_teacher_of_a_student_that_is_no_resnet_is_not_taken_silently(file: Path) -> None:
    student = {"student.patch_embed.proj.weight": torch.ones(8, 3, 16, 16)}
    content = {**student, **below("teacher.", weights())}
    refuse(content, file, "student.patch_embed", "branch='teacher'")
    assert is_resnet18(load_backbone(file, branch="teacher"), weights())


@pytest.mark.parametrize(
    ("item", "other"), [("encoder_q.", "encoder_k."), ("online.", "target."), ("query.", "guide.")]
)
def test_no_rule_holds_between_different_networks(item: str, other: str, file: Path) -> None:
    content = {**below(item, weights()), **below(other, another(weights(stem="cifar")))}
    refuse(content, file, "2 complete networks")


def test_our_own_file_has_no_branches(checkpoint: Path) -> None:
    with pytest.raises(BackboneError, match="not in exactly one prefix"):
        load_backbone(checkpoint, branch="student")


def test_a_task_takes_the_branch(
    distilled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["cifar10_knn", "--ckpt", str(distilled), "--dry-run", "--results", str(tmp_path)]
    assert main(args) == 2
    assert main([*args, "--checkpoint-key", "student"]) == 0
    assert "selected by --checkpoint-key student" in capsys.readouterr().err


COUNTERS: dict[str, tuple[Tensor, int]] = {
    "(3,)": (torch.tensor([7, 8, 9]), 7),
    "(2, 2)": (torch.full((2, 2), 7), 7),
    "(0,)": (torch.zeros(0, dtype=torch.int64), 0),
    "float": (torch.tensor(7.0), 7),
    "NaN": (torch.tensor(float("nan")), 0),
    "negative": (torch.tensor(-3), 0),
    "complex": (torch.tensor([1j]), 0),
    "bool": (torch.tensor(True), 1),
}


def test_a_step_counter_may_have_any_shape_and_type(file: Path) -> None:
    plain = another(weights())
    names = [name for name in plain if name.endswith("num_batches_tracked")]
    counters = dict(zip(names, COUNTERS.values(), strict=False))
    result = load(plain | {n: counter for n, (counter, _) in counters.items()}, file).state_dict
    assert [n for n, (_, count) in counters.items() if result[n].item() != count] == []


def test_a_feature_pyramid_in_an_encoder_is_left_out_and_named(file: Path) -> None:
    pyramid = {
        **linear("fpn_lateral5", 256, 512, 1, 1),
        **linear("fpn_output4.0", 256, 256, 3, 3),
        "fpn_output4.1.running_mean": torch.ones(256),
    }
    content = {**another(weights()), **pyramid, **linear("fc.0", 512, 512)}
    torch.save({"state_dict": below("module.encoder_q.", content)}, file)
    kinds = open_file(file)[1].kinds
    assert (kinds["feature pyramid"], kinds["head"]) == (5, 2)


@pytest.mark.parametrize("name", ["layer1.0.scaler", "layer3.0.momentum_gate", "layer2.amp"])
@pytest.mark.parametrize("prefix", ["", "module.encoder_q."])
def test_modules_within_the_backbone_are_no_part_of_an_optimizer(
    prefix: str, name: str, file: Path
) -> None:
    content = {**another(weights()), f"{name}.weight": torch.ones(3)}
    refuse({"state_dict": below(prefix, content)}, file, "belongs to a larger network", name)


@pytest.mark.parametrize("words", [["inspect"], ["cifar10_knn", "--name", "long", "--ckpt"]])
def test_a_long_name_ends_a_command_with_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "a" * 300]) == 2
    assert "too long" in capsys.readouterr().err
