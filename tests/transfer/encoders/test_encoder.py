"""Encoders of other libraries give the library's own features."""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn.functional import normalize

from transfer import Encoder, SuiteError, evaluate, tasks
from transfer.cells.cell import Cell, deviations
from transfer.cells.request import Settings
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import with_heads
from transfer.encoders.opening import open_file
from transfer.encoders.options import EncoderOptions
from transfer.encoders.sources import build

NORM: dict[str, Any] = {"input_mean": (0.5, 0.4, 0.3), "input_std": (0.25, 0.2, 0.3)}
VIT = "timm:vit_tiny_patch16_224.augreg_in21k"
SQUARE: dict[str, Any] = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}
OWN = f"""
from torch import nn

INPUT = {SQUARE}


def build():
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.GELU(), nn.Conv2d(16, 32, 2, 2))
"""


def images(size_px: int) -> torch.Tensor:
    """Return normalized noise (3, 3, S, S)."""
    return torch.randn(3, 3, size_px, size_px, generator=torch.Generator().manual_seed(1))


def timm_model(name: str, **settings: Any) -> nn.Module:
    """Return a timm network with weights of seed 0."""
    torch.manual_seed(0)
    network: nn.Module = timm.create_model(name, num_classes=7, **settings).eval()
    return network


def saved(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Write a checkpoint in DistributedDataParallel's manner."""
    file = folder / "checkpoint.pth"
    renamed = {f"module.{name}": tensor for name, tensor in tensors.items()}
    torch.save({"model": renamed, "epoch": 3}, file)
    return file


def trained_gammas(network: nn.Module) -> nn.Module:
    """Return the network without branches that start at zero, as after training."""
    for parameter in network.parameters():
        if not parameter.any() or parameter.std() == 0:
            nn.init.normal_(parameter, mean=0.5, std=0.1)
    return network


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vit_tiny_patch16_224.augreg_in21k", {}),
        ("vit_small_patch14_reg4_dinov2.lvd142m", {"img_size": 56}),
        ("convnext_atto.d2_in1k", {}),
        ("convnext_tiny.fb_in1k", {}),
        ("swin_tiny_patch4_window7_224.ms_in1k", {}),
        ("regnety_002.pycls_in1k", {}),
        ("resnet26.bt_in1k", {}),
    ],
)
def test_features_are_those_of_timm(tmp_path: Path, name: str, settings: dict[str, int]) -> None:
    network = trained_gammas(timm_model(name.partition(".")[0], **settings))
    file = saved(tmp_path, network.state_dict())
    options = EncoderOptions(encoder=f"timm:{name}", input_px=settings.get("img_size", 0))
    encoder, inspection = open_file(file, options)
    x = images(encoder.input.size_px)
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(x), pre_logits=True)  # type: ignore[operator]
        result = encoder.network()(x)
    assert torch.equal(result, expected)
    assert encoder.feature_dim == expected.shape[1]
    assert inspection.kinds.total() == len(network.state_dict())
    assert inspection.prefix == "model.module."


@pytest.mark.parametrize("name", ["regnet_y_400mf", "convnext_tiny", "vit_b_32"])
def test_features_are_those_before_torchvisions_classifier(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    network = trained_gammas(torchvision.models.get_model(name, weights=None).eval())
    encoder, _ = open_file(
        saved(tmp_path, network.state_dict()), EncoderOptions(encoder=f"torchvision:{name}")
    )
    x, last = images(224), [m for m in network.modules() if isinstance(m, nn.Linear)][-1]
    observed: list[torch.Tensor] = []
    last.register_forward_pre_hook(lambda _, inputs: observed.append(inputs[0]))
    with torch.no_grad():
        network(x)
        assert torch.equal(encoder.network()(x), observed[0])


@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_googlenet_transforms_its_input_as_with_torchvisions_weights() -> None:
    ours = torchvision.models.googlenet(
        weights=None, transform_input=True, aux_logits=False, init_weights=False
    )
    built = build("torchvision:googlenet", 0, {})
    ours.load_state_dict(built.network.state_dict(), strict=False)
    ours.fc = nn.Identity()
    with torch.no_grad():
        assert torch.equal(built.network.eval()(images(64)), ours.eval()(images(64)))
    assert built.mean == (0.485, 0.456, 0.406)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The default weight initialization")
def test_file_may_lack_auxiliary_heads(tmp_path: Path, subtests: pytest.Subtests) -> None:
    torch.manual_seed(0)
    heads, last_head = ("aux1", "aux2"), "aux2.fc2.weight"
    network = torchvision.models.googlenet(weights=None, init_weights=False)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # statistics are those of the images, so that features differ
    with torch.no_grad():
        network(torch.cat([images(64), torch.rand(6, 3, 64, 64)]))
    every = network.state_dict()
    features = {key: values for key, values in every.items() if not key.startswith(heads)}
    files = {
        "all": every,
        "none": features,
        "none of a wrapped network": {f"module.{key}": values for key, values in features.items()},
        "of ten classes": every | {last_head: every[last_head][:10]},
        "one of two": {key: v for key, v in every.items() if not key.startswith("aux2")},
    }
    result = {}
    for kind, tensors in files.items():
        options = EncoderOptions(encoder="torchvision:googlenet", input_px=64)
        encoder, _ = open_file(saved(tmp_path, tensors), options)
        has_heads = any(key.startswith(heads) for key in encoder.state_dict)
        with subtests.test(kind=kind):
            assert has_heads == (kind == "all")
        with torch.no_grad():
            result[kind] = encoder.network()(images(64))
    for kind, values in result.items():
        with subtests.test(kind=kind):
            assert torch.equal(values, result["all"])


def test_a_folder_of_transformers_is_read_with_its_input(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=56, num_labels=3
    )
    torch.manual_seed(0)
    network = transformers.Dinov2WithRegistersForImageClassification(config).eval()
    network.save_pretrained(tmp_path)
    options = EncoderOptions(encoder=f"hf:{tmp_path}", pool="cls+mean")
    file = tmp_path / "model.safetensors"
    with pytest.raises(BackboneError, match="preprocessor_config"):
        open_file(file, options)
    output = {"image_mean": [0.4] * 3, "image_std": [0.2] * 3, "crop_size": {"height": 56}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(output))
    encoder, _ = open_file(file, options)
    with torch.no_grad():
        tokens = network.base_model(images(56)).last_hidden_state
        expected = torch.cat([tokens[:, 0], tokens[:, 5:].mean(dim=1)], dim=1)
        assert torch.equal(encoder.network()(images(56)), expected)
    assert (encoder.input.mean[0], encoder.input.size_px) == (0.4, 56)


@pytest.fixture
def own_file(tmp_path: Path) -> tuple[str, Path, nn.Module]:
    """Arguments for a user's file, a checkpoint, and its network."""
    (tmp_path / "own").mkdir()
    code = tmp_path / "own" / "my_file.py"
    code.write_text(OWN)
    scope: dict[str, Any] = {}
    exec(OWN, scope)
    network = scope["build"]()
    return f"{code}:build", saved(code.parent, network.state_dict()), network


Own = tuple[str, Path, nn.Module]


def test_the_users_file_is_pooled_as_asked(own_file: Own) -> None:
    args, file, network = own_file
    encoder, _ = open_file(file, EncoderOptions(encoder=args, pool="mean"))
    with torch.no_grad():
        expected = network(images(32)).mean(dim=(2, 3))
        torch.testing.assert_close(encoder.network()(images(32)), expected)


def test_user_file_may_contain_dataclasses(
    own_file: Own,
) -> None:
    args, file, network = own_file
    code = Path(args.removesuffix(":build"))
    code.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport torch\n"
        f"@dataclass\nclass Settings:\n    width: int = 16\n{OWN}\n"
        "def load():\n    net = build()\n"
        f"    net.load_state_dict(torch.load({str(file.with_name('net.pth'))!r}))\n    return net\n"
    )
    torch.save(network.state_dict(), file.with_name("net.pth"))
    twin = Encoder.from_file(file, encoder=args, pool="mean").with_random_weights()
    assert not torch.equal(twin.state_dict["0.weight"], network.state_dict()["0.weight"])
    loads = Encoder.from_file(file, encoder=f"{code}:load", pool="mean")
    with pytest.raises(BackboneError, match=r"do not change.*to the checkpoint"):
        loads.with_random_weights()


def test_note_says_which_file_the_hash_is_of(tmp_path: Path) -> None:
    code = tmp_path / "own.py"
    code.write_text(
        f"from torch import nn\nINPUT = {SQUARE}\ndef build():\n"
        "    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    file = saved(tmp_path, build(f"{code}:build", 0, {}).network.state_dict())
    _, inspection = open_file(file, EncoderOptions(encoder=f"{code}:build"))
    sha256 = hashlib.sha256(code.read_bytes()).hexdigest()
    assert inspection.notes == (f"built by {code}:build, SHA-256 of this file: {sha256[:12]}",)


@pytest.mark.parametrize("name", ["_fc", "to_classes", "classifier"])
def test_a_classifier_that_the_users_function_leaves_out_is_a_head(
    name: str, tmp_path: Path
) -> None:
    code = tmp_path / "left_out.py"
    code.write_text(
        f"from collections import OrderedDict\nfrom torch import nn\nINPUT = {SQUARE}\n"
        "def whole():\n    return nn.Sequential(OrderedDict(first=nn.Conv2d(3, 16, 4, 4), "
        f"mean=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), {name}=nn.Linear(16, 5)))\n"
        f"def build():\n    net = whole()\n    net.{name} = nn.Identity()\n    return net\n"
        "def forgets():\n    net = whole()\n    net.first = nn.Identity()\n"
        f"    net.{name} = nn.Identity()\n    return net\n"
    )
    network = build(f"{code}:whole", 0, {}).network
    file = saved(tmp_path, network.state_dict())
    encoder, inspection = open_file(file, EncoderOptions(encoder=f"{code}:build"))
    assert inspection.kinds["head"] == 2
    with torch.no_grad():
        logits = encoder.network()(images(32)) @ network.get_parameter(f"{name}.weight").T
        logits += network.get_parameter(f"{name}.bias")
        torch.testing.assert_close(logits, network(images(32)))
    with pytest.raises(BackboneError):  # a convolution in the place of nn.Identity is no head
        open_file(file, EncoderOptions(encoder=f"{code}:forgets"))


Change = Callable[[dict[str, torch.Tensor]], object]
BROKEN: dict[str, tuple[Change, str]] = {
    "a tensor is missing": (lambda t: t.pop("blocks.3.mlp.fc1.weight"), "missing .*fc1.weight"),
    "no position embedding": (lambda t: t.pop("pos_embed"), "missing .*pos_embed"),
    "another grid": (
        lambda t: t.update(pos_embed=t["pos_embed"][:, :101]),
        r"\(1, 101, 192\).*--input-px",
    ),
    "no bias": (lambda t: [t.pop(n) for n in [*t] if "qkv.bias" in n], "qkv_bias=False"),
    "registers": (lambda t: t.update(reg_token=torch.ones(1, 4, 192)), "reg_token"),
    "q and k alone": (
        lambda t: t.update({"blocks.0.attn.qkv.weight": torch.ones(384, 192)}),
        r"\(384, 192\)",
    ),
    "all zeros": (lambda t: [tensor.zero_() for tensor in t.values()], "depend on the image"),
    "not finite": (lambda t: t["norm.weight"].fill_(torch.nan), "NaN"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_not_the_network_is_refused(tmp_path: Path, what: str) -> None:
    change, expected = BROKEN[what]
    tensors = timm_model("vit_tiny_patch16_224").state_dict()
    change(tensors)
    with pytest.raises(BackboneError, match=expected):
        open_file(saved(tmp_path, tensors), EncoderOptions(encoder=VIT))


def test_a_vit_of_another_size_is_named(tmp_path: Path) -> None:
    tensors = timm_model("vit_tiny_patch16_224").state_dict()
    bare = {name: tensor for name, tensor in tensors.items() if "qkv.bias" not in name}
    for stored in (tensors, bare):
        file = saved(tmp_path, stored)
        for requested in ("", "timm:vit_small_patch16_224.dino", "timm:convnext_atto"):
            with pytest.raises(BackboneError) as refused:
                open_file(file, EncoderOptions(encoder=requested))
            output = "a ViT-Tiny with patches of 16 px for images of 224 px"
            assert f"{output}, such as --encoder timm:vit_tiny_patch16_224" in str(refused.value)
            assert "qkv_bias" not in str(refused.value)


def test_mean_and_std_of_no_tag_are_said_to_be_timms(tmp_path: Path) -> None:
    file = saved(tmp_path, timm_model("vit_tiny_patch16_224").state_dict())
    named, expected = "timm:vit_tiny_patch16_224", "mean and std of timm's weights vit_tiny"
    encoder, inspection = open_file(file, EncoderOptions(encoder=named))
    assert inspection.assumed.startswith(expected)
    assert f"; assumed: {expected}" in encoder.source
    for options in (EncoderOptions(encoder=VIT), EncoderOptions(**{"encoder": named, **NORM})):
        assert open_file(file, options)[1].assumed == ""


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("no model 'vit_tini'", {"encoder": "timm:vit_tini"}),
    ("knows no weights", {"encoder": "timm:vit_tiny_patch16_224.none"}),
    ("expected timm:NAME", {"encoder": "vit"}),
    ("no class token", {"encoder": "OWN:build", "pool": "cls"}),
    ("pass --pool", {"encoder": "OWN:build"}),
    ("no linear classifier", {"encoder": "torchvision:squeezenet1_1"}),
    ("no such file", {"encoder": "absent.py:build"}),
    ("no function", {"encoder": "OWN:make"}),
    ("--pool avg: expected cls, ", {"encoder": "OWN:build", "pool": "avg"}),
    ("have no name of", {"encoder": VIT}),
]


@pytest.mark.parametrize(("message", "given"), REFUSED)
def test_what_nothing_says_is_asked_for(message: str, given: dict[str, Any], own_file: Own) -> None:
    args, file, _ = own_file
    encoder = given["encoder"].replace("OWN", args.removesuffix(":build"))
    with pytest.raises(BackboneError, match=message):
        open_file(file, EncoderOptions(**given | {"encoder": encoder}))


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("vit_small_patch16_224", {}, "select one: vit_small_patch16_224.augreg"),
        ("convnextv2_nano", NORM, "pass --input-px"),
        ("mobilenetv3_small_050", {"pool": "cls-of-last-4"}, "does not support --pool"),
    ],
)
def test_options_are_asked_for_after_shapes_are_checked(
    name: str, given: dict[str, Any], message: str, tmp_path: Path
) -> None:
    tensors = timm_model(name).state_dict()
    options = EncoderOptions(**{"encoder": f"timm:{name}", **given})
    for changed, expected in ((False, message), (True, "wrong shape")):
        if changed:
            first = next(key for key, tensor in tensors.items() if tensor.ndim == 4)
            tensors[first] = tensors[first][1:]
        with pytest.raises(BackboneError, match=expected):
            open_file(saved(tmp_path, tensors), options)


def test_options_of_an_encoder_go_with_one() -> None:
    with pytest.raises(ValueError, match="--pool requires --encoder"):
        EncoderOptions(pool="cls").check()


@pytest.mark.parametrize(("library", "words"), [("timm", VIT), ("transformers", "hf:folder")])
def test_without_a_library_the_plan_says_what_to_install(
    library: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    file = saved(tmp_path, {"weight": torch.zeros(3)})
    with pytest.raises(BackboneError, match=rf"needs {library}.*pip install .*encoders"):
        open_file(file, EncoderOptions(encoder=words))


def test_the_teacher_of_dino_is_taken(tmp_path: Path) -> None:
    teacher = timm_model("vit_tiny_patch16_224").state_dict()
    content = {
        "student": {f"module.backbone.{name}": tensor + 1 for name, tensor in teacher.items()},
        "teacher": {f"backbone.{name}": tensor for name, tensor in teacher.items()},
    }
    torch.save(content, tmp_path / "dino.pth")
    encoder = Encoder.from_file(tmp_path / "dino.pth", encoder=VIT)
    assert "prefix teacher.backbone." in encoder.source
    assert torch.equal(encoder.state_dict["norm.bias"], teacher["norm.bias"])
    options = EncoderOptions(encoder=VIT)
    second, _ = open_file(tmp_path / "dino.pth", options, branch="student")
    assert torch.equal(second.state_dict["norm.bias"], teacher["norm.bias"] + 1)
    assert second.sha256 != encoder.sha256


def test_dinos_probe_reads_the_last_four_class_tokens(tmp_path: Path) -> None:
    network: Any = timm_model("vit_tiny_patch16_224")
    options = EncoderOptions(encoder=VIT, pool="cls-of-last-4")
    encoder, _ = open_file(saved(tmp_path, network.state_dict()), options)
    observed: list[torch.Tensor] = []
    for block in network.blocks[-4:]:
        block.register_forward_hook(lambda *call: observed.append(network.norm(call[2])[:, 0]))
    with torch.no_grad():
        network(images(224))
        torch.testing.assert_close(encoder.network()(images(224)), torch.cat(observed, dim=1))
        tokens = network.forward_features(images(224))
    assert encoder.feature_dim == 4 * 192
    wider = Encoder.from_file(encoder.file, encoder=VIT, pool="cls-of-last-4+mean")
    with torch.no_grad():
        means = wider.network()(images(224))[:, 4 * 192 :]
    torch.testing.assert_close(means, tokens[:, 1:].mean(dim=1))


def test_a_with_random_weights_knows_network_and_input(tmp_path: Path) -> None:
    file = saved(tmp_path, timm_model("vit_tiny_patch16_224").state_dict())
    encoder, _ = open_file(file, EncoderOptions(encoder=VIT, pool="cls", **NORM))
    twin, again = encoder.with_random_weights(), encoder.with_random_weights()
    assert twin.sha256 == again.sha256 != encoder.sha256
    assert encoder.source.endswith("RGB, 224 px, as the source says; pooling cls")
    assert (twin.name, twin.input, twin.options) == ("random", encoder.input, encoder.options)


def small_network() -> nn.Sequential:
    layers = nn.Conv2d(3, 8, 4, 4), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers)


def test_a_with_random_weights_keeps_nothing_of_a_module() -> None:
    encoder = Encoder.from_module(trained_gammas(small_network()), **SQUARE)
    twin = encoder.with_random_weights()
    assert not torch.equal(twin.state_dict["0.weight"], encoder.state_dict["0.weight"])
    vit = torchvision.models.VisionTransformer(32, 16, 1, 2, 16, 32, num_classes=5)
    with pytest.raises(BackboneError, match=r"class_token.*pos_embedding.*in_proj_weight"):
        Encoder.from_module(trained_gammas(vit), **SQUARE).with_random_weights()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_module_is_proven_also_where_gradients_are_off(mode: Callable[[], Any]) -> None:
    network = small_network()
    with mode():
        encoder = Encoder.from_module(network, **SQUARE)
    assert encoder.sha256 == Encoder.from_module(network, **SQUARE).sha256


def test_an_encoder_in_bfloat16_has_no_folded_norms(settings: Settings) -> None:
    encoder = Encoder.from_module(small_network(), **SQUARE)
    rounded = replace(settings, features_in="bfloat16")
    cell = Cell.with_backbone(task="cifar10_knn", backbone=encoder, seed=0, settings=rounded)
    assert "frozen features in bfloat16" in deviations(cell)


def test_a_module_whose_code_has_changed_is_another_encoder() -> None:
    network = small_network()
    first, same = (Encoder.from_module(network, **SQUARE) for _ in range(2))
    network[2].forward = lambda maps: maps.amax(dim=(2, 3))
    assert first.sha256 == same.sha256 != Encoder.from_module(network, **SQUARE).sha256


def test_python_gives_a_plain_loops_neighbors(small_data: Path, tmp_path: Path) -> None:
    from transfer.datasets.catalog import open_split

    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 24, 2, 2)).eval()
    mean, std = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
    encoder = Encoder.from_module(network, size_px=32, mean=mean, std=std, pool="mean")
    task = tasks.get("cifar10_knn").ablation("k1", num_neighbors=1)
    result = evaluate(encoder, task, data=small_data, runs=tmp_path / "runs")

    def features(split: str) -> tuple[torch.Tensor, torch.Tensor]:
        actual = open_split("cifar10", small_data, split)
        pixels = torch.stack([torch.tensor(np.array(actual[i][0])) for i in range(len(actual))])
        x = pixels.permute(0, 3, 1, 2).float() / 255
        x = (x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
        with torch.no_grad():
            return normalize(network(x).mean(dim=(2, 3)), dim=1), torch.as_tensor(actual.labels)

    bank, expected = features("trainval")
    queries, labels = features("test")
    right = expected[(queries @ bank.T).argmax(dim=1)] == labels
    assert result.metrics["top1"] == pytest.approx(100 * right.float().mean().item())
    assert result.protocol["name"] == "uniclr-2022/1+k1"
    assert result.protocol["hash"] != result.protocol["paper_hash"]
    with pytest.raises(SuiteError, match="frozen features"):
        evaluate(encoder, "coco_det", data=small_data)
    with pytest.raises(ValueError, match="Sequential has no heads"):
        with_heads(encoder, [0])
    with pytest.raises(ValueError, match="is not a valid name of a row"):
        evaluate(replace(encoder, name="../up"), task, data=small_data)
    with pytest.raises(ValueError, match="'float16': expected auto, float32, bfloat16"):
        evaluate(encoder, task, data=small_data, features_in="float16")  # type: ignore[arg-type]
    with pytest.raises(SuiteError, match="has no neighbors"):
        tasks.get("cifar10_knn").ablation("k5", neighbors=5)
    with pytest.raises(SuiteError, match="has no crop_px"):  # the encoder's own
        tasks.get("cifar10_knn").ablation("large", crop_px=320)
