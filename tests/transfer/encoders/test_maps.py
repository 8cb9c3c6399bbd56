"""Feature maps equal each library's, at native and other sizes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transfer import Encoder
from transfer.encoders.encoder import random_backbone
from transfer.encoders.maps import resampled_positions
from transfer.encoders.opening import encoder_of_network
from transfer.encoders.options import EncoderOptions
from transfer.encoders.pooling import as_maps
from transfer.encoders.sources import build

SQUARE: dict[str, Any] = {"size_px": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3}


def images(size_px: int) -> Tensor:
    return torch.randn(2, 3, size_px, size_px, generator=torch.Generator().manual_seed(1))


def library_encoder(name: str, size_px: int) -> Encoder:
    """A network of timm, torchvision or transformers with random weights."""
    options = EncoderOptions(
        encoder=name, input_px=size_px, input_mean=(0.5,) * 3, input_std=(0.5,) * 3
    )
    if name.startswith("timm:vit") or name.startswith("hf"):
        options = EncoderOptions(**{**vars(options), "pool": "cls"})
    torch.manual_seed(0)
    return encoder_of_network(build(name, size_px, {}), options, "random", "")


def maps_and_network(encoder: Encoder, size_px: int) -> tuple[Tensor, Any]:
    network = encoder.maps_network(size_px)
    with torch.no_grad():
        maps: Tensor = network(images(size_px))
    return maps, network.network


def test_maps_of_a_resnet_are_layer4_at_stride_32() -> None:
    encoder = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    maps, network = maps_and_network(encoder, 128)
    assert maps.shape == (2, 512, 4, 4)
    assert torch.allclose(maps.mean(dim=(2, 3)), network(images(128)), atol=1e-5)
    assert encoder.maps_stride == (32, "")


def test_a_resnet_with_another_stem_says_that_it_has_no_maps() -> None:
    stride, reason = random_backbone(arch="resnet18", stem="cifar", seed=0).maps_stride
    assert stride == 0
    assert "cifar stem" in reason


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2"])
def test_maps_of_timms_vits_are_normalized_patch_tokens(name: str) -> None:
    pytest.importorskip("timm")
    size = 56 if "14" in name else 64
    encoder = library_encoder(f"timm:{name}", size)
    maps, network = maps_and_network(encoder, size)
    tokens = network.forward_features(images(size))[:, network.num_prefix_tokens :]
    assert torch.equal(maps.flatten(2).transpose(1, 2), tokens)
    (last,) = network.forward_intermediates(images(size), indices=1, norm=True)[1]
    assert torch.allclose(maps, last, atol=1e-5)
    assert encoder.maps_stride == (size // maps.shape[2], "")


def test_positions_are_resampled_as_timm_does() -> None:
    layers = pytest.importorskip("timm.layers")
    values = torch.randn(1, 1 + 14 * 14, 8)
    assert torch.equal(resampled_positions(values, 14), values)
    expected = layers.resample_abs_pos_embed(values, [32, 32], num_prefix_tokens=1)
    assert torch.allclose(resampled_positions(values, 32), expected, atol=1e-6)


def test_a_vit_of_timm_takes_another_size_with_resampled_positions() -> None:
    pytest.importorskip("timm")
    encoder = library_encoder("timm:vit_tiny_patch16_224", 64)
    maps, network = maps_and_network(encoder, 96)
    ours = encoder.state_dict["pos_embed"]
    assert maps.shape == (2, 192, 6, 6)
    assert torch.allclose(network.pos_embed, resampled_positions(ours, 6), atol=1e-6)


def test_maps_of_a_vit_that_pools_its_patches_are_normalized() -> None:
    pytest.importorskip("timm")
    encoder = library_encoder("timm:beit_base_patch16_224", 32)
    maps, network = maps_and_network(encoder, 32)
    tokens = network.forward_features(images(32))[:, 1:]
    assert torch.allclose(maps.flatten(2).transpose(1, 2), network.fc_norm(tokens), atol=1e-5)


@pytest.mark.parametrize("name", ["timm:convnext_atto", "torchvision:convnext_tiny"])
def test_maps_of_a_convnext_have_the_heads_norm_at_each_place(name: str) -> None:
    if name.startswith("timm"):
        pytest.importorskip("timm")
    maps, network = maps_and_network(library_encoder(name, 64), 64)
    timms = name.startswith("timm")
    plain = (network.forward_features if timms else network.features)(images(64))
    norm = network.head.norm if timms else network.classifier[0]
    assert torch.allclose(maps[:, :, 1:, 1:], norm(plain[:, :, 1:, 1:]), atol=1e-5)


@pytest.mark.parametrize("name", ["timm:swin_tiny_patch4_window7_224", "torchvision:swin_t"])
def test_maps_of_a_swin_have_their_channels_first(name: str) -> None:
    if name.startswith("timm"):
        pytest.importorskip("timm")
    maps, network = maps_and_network(library_encoder(name, 224), 224)
    assert maps.shape == (2, 768, 7, 7)
    assert torch.allclose(maps.mean(dim=(2, 3)), network(images(224)), atol=1e-4)


def test_maps_of_torchvisions_vit_are_its_encoders_patches() -> None:
    encoder = library_encoder("torchvision:vit_b_32", 64)
    maps, network = maps_and_network(encoder, 64)
    tokens: list[Tensor] = []
    network.encoder.register_forward_hook(lambda *call: tokens.append(call[2]))
    network(images(64))
    assert torch.equal(maps.flatten(2).transpose(1, 2), tokens[0][:, 1:])
    assert maps_and_network(encoder, 128)[0].shape == (2, 768, 4, 4)


def test_maps_of_a_model_of_transformers_are_its_last_hidden_state(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=56, patch_size=14
    )
    config.save_pretrained(tmp_path)
    encoder = library_encoder(f"hf:{tmp_path}", 56)
    maps, network = maps_and_network(encoder, 56)
    hidden = network(pixel_values=images(56)).last_hidden_state[:, 5:]
    assert torch.equal(maps.flatten(2).transpose(1, 2), hidden)
    _, resized = maps_and_network(encoder, 84)
    ours = encoder.state_dict["embeddings.position_embeddings"]
    assert torch.equal(resized.embeddings.position_embeddings, resampled_positions(ours, 6))


@pytest.mark.parametrize("input_px", [56, 84])
def test_positions_of_a_model_of_transformers_are_resampled_at_every_input_size(
    tmp_path: Path, input_px: int
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14
    )
    config.save_pretrained(tmp_path)
    encoder = library_encoder(f"hf:{tmp_path}", input_px)
    ours = encoder.state_dict["embeddings.position_embeddings"]
    for size_px in (56, 84):
        _, network = maps_and_network(encoder, size_px)
        expected = resampled_positions(ours, size_px // 14)
        assert torch.equal(network.embeddings.position_embeddings, expected)


def test_maps_that_a_users_network_returns_need_no_function() -> None:
    encoder = Encoder.from_module(nn.Conv2d(3, 8, 4, 4), pool="mean", **SQUARE)
    maps, network = maps_and_network(encoder, 64)
    assert torch.equal(maps, network(images(64)))
    assert encoder.maps_stride == (4, "")


def test_a_function_gives_maps_and_is_part_of_the_identity() -> None:
    layers = nn.Conv2d(3, 8, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    torch.manual_seed(0)
    network = nn.Sequential(*layers)
    plain = Encoder.from_module(network, **SQUARE)
    first, second = (
        Encoder.from_module(network, maps=maps, **SQUARE)
        for maps in (lambda net, x: net[0](x), lambda net, x: -net[0](x))
    )
    assert plain.maps_stride[0] == 0
    assert first.maps_stride == second.maps_stride == (4, "")
    assert len({plain.sha256, first.sha256, second.sha256}) == 3
    assert first.with_random_weights().maps_stride == (4, "")


def test_own_file_may_define_maps(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def network():\n"
        "    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
        "def maps(network, images):\n"
        "    return network[0](images)\n"
    )
    assert library_encoder(f"{tmp_path}/own.py:network", 32).maps_stride == (4, "")


def test_the_stride_is_known_without_weights_as_in_a_plan() -> None:
    encoder = Encoder.from_module(nn.Conv2d(3, 8, 4, 4), pool="mean", **SQUARE)
    assert replace(encoder, state_dict={}).maps_stride == (4, "")


def test_convolutions_that_lose_the_border_have_a_stride() -> None:
    assert Encoder.from_module(nn.Conv2d(3, 8, 3, 2), pool="mean", **SQUARE).maps_stride == (2, "")


def test_tokens_without_a_square_of_patches_are_no_maps() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Conv2d(3, 8, 4, 4)

        def forward(self, pixels: Tensor) -> Tensor:
            tokens: Tensor = self.net(pixels).flatten(2).transpose(1, 2)
            return tokens[:, 1:]

    stride, reason = Encoder.from_module(Tokens(), pool="mean", **SQUARE).maps_stride
    assert stride == 0
    assert "not form a square" in reason


def test_tokens_are_in_rows_from_the_top() -> None:
    tokens = torch.arange(1 + 9).reshape(1, 10, 1).float()
    assert as_maps(tokens, nn.Identity(), prefix=1)[0, 0, 0].tolist() == [1, 2, 3]
