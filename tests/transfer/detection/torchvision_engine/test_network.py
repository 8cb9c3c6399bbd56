"""The whole network: norm layers, empty batches, RPN gradients and sizes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.transfer.detection.fixed_detector import in_double
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import (
    COCO_FPN_KEYPOINTS,
    COCO_FPN_MASKS,
    VOC_C4,
    VOC_C4_NONE,
    DetectorRecipe,
    RPNGradient,
)
from transfer.detection.torchvision_engine.network import RCNN
from transfer.detection.torchvision_engine.proposals import RPN


def tiny(recipe: DetectorRecipe) -> RCNN:
    torch.manual_seed(0)
    return RCNN(recipe.tiny(), arch="resnet18", num_classes=3, norm="BN")


def test_images_without_objects_have_finite_losses(
    subtests: pytest.Subtests,
) -> None:
    for recipe in [COCO_FPN_MASKS, COCO_FPN_KEYPOINTS, VOC_C4]:
        for num_with_objects in [0, 1]:
            with subtests.test(recipe=recipe, num_with_objects=num_with_objects):
                network = tiny(replace(recipe, min_score=1.0)).train()
                samples = small_samples(2, num_classes=3)
                for i in range(num_with_objects, 2):
                    samples[i] = replace(
                        samples[i],
                        boxes=torch.zeros(0, 4),
                        classes=torch.zeros(0, dtype=torch.int64),
                        polygons=(),
                        keypoints=torch.zeros(0, 17, 3),
                    )
                total: Tensor = sum(network(samples).values(), torch.zeros(()))
                total.backward()
                assert total.isfinite()
                assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
                (result,) = network.eval().find([samples[0].image])
                assert len(result.boxes) == len(result.scores) == len(result.classes) == 0


def gradients(reading: RPNGradient) -> dict[str, Tensor]:
    """Return those of the RPN's losses."""
    network = tiny(replace(VOC_C4, rpn_gradient=reading)).train()
    in_double(network)  # norms enlarge roundings of gradients
    torch.manual_seed(1)
    losses = network(small_samples(num_classes=3))
    (losses["loss_rpn_cls"] + losses["loss_rpn_loc"]).backward()
    return {n: p.grad for n, p in network.named_parameters() if p.grad is not None}


def test_the_rpn_sends_a_tenth_into_every_tensor_of_the_backbone() -> None:
    whole, tenth = gradients("none"), gradients("scale_input")
    weighted, slower = gradients("loss_weight"), gradients("lr_mult")
    reached = [name for name in whole if name.startswith("backbone.") and "layer4" not in name]
    assert len(reached) == 45
    for name in reached:
        difference = (tenth[name] - 0.1 * whole[name]).norm().item()
        assert difference <= 1e-7 * whole[name].norm().item() > 0
    ours = [name for name in whole if name.startswith("rpn.")]
    assert len(ours) == 8
    assert all(torch.equal(tenth[name], whole[name]) for name in ours)
    # a lower rate is the optimizer's business; a weighted loss is float32, its gradients rounded
    assert all(torch.equal(slower[name], whole[name]) for name in whole)
    for name in ours:
        atol = 64 * torch.finfo(torch.float32).eps * 0.1 * float(whole[name].abs().max())
        torch.testing.assert_close(weighted[name], 0.1 * whole[name], rtol=0, atol=atol)


def test_losses_under_autocast_are_float32() -> None:
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


def test_the_rpn_and_the_norm_in_front_of_it_are_told_apart() -> None:
    detector = RCNN(VOC_C4.tiny(), arch="resnet18", num_classes=3, norm="BN")
    every = [name for name, _ in detector.named_parameters()]
    names = [name for name in every if name.startswith(detector.rpn_prefix)]
    assert len(names) == 8
    ours = {"input_norm", "convolution", "objectness", "deltas"}
    assert {name.split(".")[1] for name in names} == ours


def rpn() -> RPN:
    torch.manual_seed(0)
    recipe = replace(VOC_C4_NONE.tiny(), rpn_proposals=(7, 4))
    created = RPN(recipe, channels=8, strides_px=(16,), norm=nn.BatchNorm2d)
    for layer in (created.objectness, created.deltas):
        nn.init.normal_(layer.weight, std=0.3)
    return created


def shared_map() -> Tensor:
    return torch.randn(1, 8, 7, 8, generator=torch.Generator().manual_seed(1))


def test_proposals_are_of_the_number_for_training_or_test() -> None:
    for created, count in ((rpn().train(), 7), (rpn().eval(), 4)):
        assert len(created([shared_map()], [(96, 128)], small_samples(1))[0][0]) == count


def test_an_object_that_no_anchor_fits_is_learned_all_the_same() -> None:
    thin = replace(small_samples(1)[0], boxes=torch.tensor([[10.0, 30.0, 110.0, 31.0]]))
    assert rpn().train()([shared_map()], [(96, 128)], [thin])[1]["loss_rpn_loc"] > 0


def test_diverged_training_is_an_error() -> None:
    spoiled = rpn().eval()
    nn.init.constant_(spoiled.get_parameter("objectness.bias"), float("inf"))
    assert len(spoiled([shared_map()], [(96, 128)], None)[0][0]) == 0
    with pytest.raises(FloatingPointError, match="not finite"):
        rpn().train()([shared_map() * float("nan")], [(96, 128)], small_samples(1))
