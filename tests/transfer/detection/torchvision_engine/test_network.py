"""The whole network: its norms, its first step, batches without objects, what it finds."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.transfer.detection.parity import in_double
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import (
    COCO_4CONV1FC,
    COCO_FPN,
    COCO_FPN_KEYPOINTS,
    COCO_FPN_MASKS,
    VOC_C4,
    VOC_C4_MOCO,
    VOC_C4_NONE,
    DetectorRecipe,
)
from transfer.detection.torchvision_engine.network import RCNN

RECIPES = {
    "boxes": COCO_FPN,
    "masks": COCO_FPN_MASKS,
    "keypoints": COCO_FPN_KEYPOINTS,
    "4conv1fc": COCO_4CONV1FC,
    "c4 none": VOC_C4_NONE,
    "c4 moco": VOC_C4_MOCO,
    "c4 co2": VOC_C4,
}
LOSSES = {"loss_rpn_cls", "loss_rpn_loc", "loss_cls", "loss_box_reg"}
OWN_LOSS = {"boxes": set(), "masks": {"loss_mask"}, "keypoints": {"loss_keypoint"}}


def tiny(recipe: DetectorRecipe, arch: str = "resnet18") -> RCNN:
    torch.manual_seed(0)
    return RCNN(recipe.tiny(), arch=arch, num_classes=3, norm="BN")


def norms_of(network: nn.Module) -> dict[str, int]:
    """How many norm layers each part of a network has."""
    names = [n.split(".")[0] for n, m in network.named_modules() if isinstance(m, nn.BatchNorm2d)]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def test_the_first_step_moves_every_parameter(subtests: pytest.Subtests) -> None:
    for recipe in RECIPES.values():
        with subtests.test(recipe=recipe):
            network = tiny(recipe).train()
            before = {name: p.detach().clone() for name, p in network.named_parameters()}
            losses = network(small_samples(3, num_classes=3))
            assert losses.keys() == LOSSES | OWN_LOSS[recipe.finds]
            sum(losses.values()).backward()
            torch.optim.SGD(network.parameters(), lr=1.0).step()
            still = [name for name, p in network.named_parameters() if torch.equal(p, before[name])]
            assert still == []


def test_norms_are_where_the_recipe_puts_them(subtests: pytest.Subtests) -> None:
    for recipe, norms in [
        (COCO_FPN, {"backbone": 20, "pyramid": 8}),
        (replace(COCO_FPN, normed=()), {"backbone": 20}),
        (COCO_4CONV1FC, {"backbone": 20, "pyramid": 8, "box_head": 4}),
        (VOC_C4_NONE, {"backbone": 20}),
        (VOC_C4_MOCO, {"backbone": 20, "box_head": 1}),
        (VOC_C4, {"backbone": 20, "rpn": 1, "box_head": 1}),
    ]:
        with subtests.test(recipe=recipe, norms=norms):
            assert norms_of(tiny(recipe)) == norms


def test_the_extra_norms_have_the_channels_of_their_maps() -> None:
    for arch, channels in (("resnet18", (256, 512)), ("resnet50", (1024, 2048))):
        network = tiny(VOC_C4, arch)
        norms = ("rpn.input_norm.weight", "box_head.norm.weight")
        assert tuple(len(network.get_parameter(name)) for name in norms) == channels


def test_losses_are_finite_where_images_have_no_objects(subtests: pytest.Subtests) -> None:
    for recipe in [COCO_FPN_MASKS, COCO_FPN_KEYPOINTS, VOC_C4]:
        for num_with_objects in [0, 1]:
            with subtests.test(recipe=recipe, num_with_objects=num_with_objects):
                network = tiny(recipe).train()
                samples = small_samples(2, num_classes=3)
                for i in range(num_with_objects, 2):
                    samples[i] = replace(
                        samples[i],
                        boxes=torch.zeros(0, 4),
                        classes=torch.zeros(0, dtype=torch.int64),
                        polygons=(),
                        keypoints=torch.zeros(0, 17, 3),
                    )
                total = sum(network(samples).values())
                assert isinstance(total, torch.Tensor)
                total.backward()
                assert total.isfinite()
                assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_networks_of_both_kinds_of_blocks_find_boxes(subtests: pytest.Subtests) -> None:
    for arch in ["resnet18", "resnet50"]:
        for recipe in [COCO_FPN, VOC_C4]:
            with subtests.test(arch=arch, recipe=recipe):
                network = tiny(replace(recipe, min_score=0.0), arch).eval()
                for found, sample in zip(
                    network.detections([s.image for s in small_samples()]),
                    small_samples(),
                    strict=True,
                ):
                    assert 0 < len(found.boxes) <= 100
                    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)
                    assert set(found.classes.tolist()) <= {0, 1, 2}
                    assert (
                        found.boxes[:, 2:].amax(dim=0) <= torch.tensor(sample.image.shape[:0:-1])
                    ).all()


@pytest.mark.parametrize(
    ("recipe", "shapes"),
    [(COCO_FPN_MASKS, {"masks": (28, 28)}), (COCO_FPN_KEYPOINTS, {"keypoints": (17, 3)})],
)
def test_detections_hold_masks_or_keypoints(
    recipe: DetectorRecipe, shapes: dict[str, tuple[int, ...]]
) -> None:
    network = tiny(replace(recipe, min_score=0.0)).eval()
    (found,) = network.detections([small_samples(1)[0].image])
    extra = {
        name: value.shape[1:]
        for name in ("masks", "keypoints")
        if (value := getattr(found, name)) is not None
    }
    assert extra == shapes


@pytest.mark.parametrize("recipe", [COCO_FPN_MASKS, COCO_FPN_KEYPOINTS, VOC_C4])
def test_finding_nothing_is_no_error(recipe: DetectorRecipe) -> None:
    network = tiny(replace(recipe, min_score=1.0)).eval()
    (found,) = network.detections([small_samples(1)[0].image])
    assert len(found.boxes) == len(found.scores) == len(found.classes) == 0


def test_an_image_finds_the_same_beside_a_larger_one_on_a_pyramid_of_equal_padding() -> None:
    network = tiny(replace(COCO_FPN, min_score=0.0)).eval()
    in_double(network)  # so that roundings decide of no box
    image = small_samples(1)[0].image
    (alone,) = network.detections([image])
    beside = network.detections([image, torch.zeros(3, 70, 100, dtype=torch.uint8)])[0]
    # the coding of boxes: a dozen operations on up to 128 px in float32
    atol = 12 * 128 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(alone.boxes, beside.boxes, rtol=0, atol=atol)


def test_the_rpn_sends_a_tenth_into_every_tensor_of_the_backbone() -> None:
    grads = []
    for reading in ("none", "scale_input"):
        network = tiny(replace(VOC_C4, rpn_gradient=reading)).train()
        in_double(network)  # norms enlarge roundings of gradients
        torch.manual_seed(1)
        losses = network(small_samples(num_classes=3))
        (losses["loss_rpn_cls"] + losses["loss_rpn_loc"]).backward()
        grads.append({n: p.grad for n, p in network.named_parameters() if p.grad is not None})
    whole, tenth = grads
    reached = [name for name in whole if name.startswith("backbone.") and "layer4" not in name]
    assert len(reached) == 45
    for name in reached:
        difference = (tenth[name] - 0.1 * whole[name]).norm().item()
        assert difference <= 1e-7 * whole[name].norm().item() > 0
    own = [name for name in whole if name.startswith("rpn.")]
    assert len(own) == 8
    assert all(torch.equal(tenth[name], whole[name]) for name in own)


def test_losses_under_autocast_are_float32_and_near_those_without() -> None:
    network = tiny(COCO_FPN_MASKS).train()
    samples = small_samples(num_classes=3)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = network(samples)
    torch.manual_seed(1)
    whole = network(samples)
    assert {loss.dtype for loss in low.values()} == {torch.float32}
    # thirty roundings by 2^-9 at most
    for name in ("loss_rpn_cls", "loss_cls", "loss_mask"):
        assert low[name].item() == pytest.approx(whole[name].item(), rel=0.05)
