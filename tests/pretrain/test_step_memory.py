"""Memory of a step, from the maps of every convolution.

A run that exceeds the memory is refused.
"""

import pytest
import torch
from torch import nn

from pretrain.command import parse
from pretrain.job import planned_memory
from pretrain.methods import METHODS
from pretrain.parts.resnet import build_resnet, checkpoint_activations
from pretrain.recipes import RECIPES
from pretrain.step_memory import memory_needs
from tests.tiny_methods import LEARNING, tiny_method


def maps_of(side_px: int) -> int:
    """Bytes in bfloat16 that one ResNet-50 view keeps, from map sizes.

    Each convolution keeps its result, which the norm reads. Except in shortcuts, the norm's result
    is also kept, on which sums and ReLU work in place. The image, the pooled maps and the pool's
    indices (int64) are added.
    """
    with torch.device("meta"):
        network, _ = build_resnet("resnet50", "imagenet")
    sizes: dict[str, int] = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda *args, name=name: sizes.update({name: args[2].numel()})
            )
    network(torch.empty(1, 3, side_px, side_px, device="meta"))
    pooled = 64 * (side_px // 4) ** 2
    norms = sum(size for name, size in sizes.items() if "downsample" not in name)
    return 2 * (sum(sizes.values()) + norms + 3 * side_px**2 + pooled) + 8 * pooled


@pytest.mark.parametrize(
    ("recipe", "num_large", "num_small"),
    [
        ("moco/in1k-r50-v2", 1, 0),
        ("simclr/in1k-r50", 2, 0),
        ("swav/in1k-r50-2x224-6x96", 2, 6),
    ],
)
def test_activations_are_the_maps_of_every_view_that_learns(
    recipe: str, num_large: int, num_small: int
) -> None:
    settings = RECIPES[recipe]
    backbone, width = build_resnet(settings.arch, settings.stem)
    method = METHODS[settings.method](backbone, width, settings.config)
    small, large = (memory_needs(method, settings, n, torch.bfloat16) for n in (16, 32))
    views = 2 * 4 * 3 * (2 * 224**2 + num_small * 96**2)  # two batches, float32
    # weights, and their copies in bfloat16, do not grow with the batch
    expected = num_large * maps_of(224) + num_small * maps_of(96) + views
    assert (large - small) / 16 == pytest.approx(expected, rel=0.005)


def test_checkpointed_blocks_keep_their_inputs_alone() -> None:
    backbone, width = build_resnet("resnet50", "imagenet")
    method = METHODS["simclr"](backbone, width, RECIPES["simclr/in1k-r50"].config)
    checkpoint_activations(method)
    stored = [
        memory_needs(method, RECIPES["simclr/in1k-r50"], num, torch.bfloat16) for num in (16, 32)
    ]
    inputs = [64 * 56**2, *[256 * 56**2] * 3, *[512 * 28**2] * 4, *[1024 * 14**2] * 6]
    inputs += [2048 * 7**2] * 2
    stem = 2 * (3 * 224**2 + 2 * 64 * 112**2) + 8 * 64 * 56**2
    views = 2 * 2 * 4 * 3 * 224**2
    expected = 2 * (stem + 2 * sum(inputs)) + views
    assert (stored[1] - stored[0]) / 16 == pytest.approx(expected, rel=0.005)


def test_every_method_is_followed_through_its_networks() -> None:
    for name in LEARNING:
        method, recipe = tiny_method(name), RECIPES[f"{name}/smoke"]
        previous = {key: value.clone() for key, value in method.state_dict().items()}
        needs = memory_needs(method, recipe, 16, torch.float32)
        trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
        assert needs > 16 * 3 * 8 * recipe.views.size_px**2 + 8 * trained, name
        assert all(torch.equal(value, previous[key]) for key, value in method.state_dict().items())


@pytest.mark.parametrize(
    ("name", "processes"), [("wmse", "4"), ("simsiam", "16"), ("barlow_twins", "32")]
)
def test_images_of_one_process_may_be_fewer_than_the_loss_or_a_norm_of_all_needs(
    name: str, processes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of 16 images: sub-batches of 8, one or none for a norm
    monkeypatch.setenv("WORLD_SIZE", processes)
    command = parse(f"{name}/smoke", ["--data", "d", "--out", "o", "--dry-run"])
    weights = build_resnet("resnet18", "imagenet")[0].parameters()
    assert planned_memory(command) > 8 * sum(weight.numel() for weight in weights)
