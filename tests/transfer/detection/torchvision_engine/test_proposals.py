"""The RPN: its losses, what they do to the shared maps, and what it proposes."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.transfer.detection.parity import in_double
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import COCO_FPN, VOC_C4, VOC_C4_MOCO, VOC_C4_NONE, DetectorRecipe
from transfer.detection.sample import Sample
from transfer.detection.torchvision_engine.proposals import RPN, candidates

CHANNELS = 8
SIZES = [(96, 128), (112, 96)]


def c4_rpn(recipe: DetectorRecipe, seed: int = 0) -> RPN:
    torch.manual_seed(seed)
    rpn = RPN(recipe.tiny(), channels=CHANNELS, strides_px=(16,), norm=nn.BatchNorm2d)
    for layer in (rpn.objectness, rpn.deltas):
        nn.init.normal_(layer.weight, std=0.3)
    return rpn.train()


def shared_map() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, CHANNELS, 7, 8, generator=generator).requires_grad_()


def gradients(recipe: DetectorRecipe, loss: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Return gradients of one loss, for the shared map and the RPN's parameters, in float64."""
    rpn, features = c4_rpn(recipe), shared_map().detach().double().requires_grad_()
    in_double(rpn)
    torch.manual_seed(2)
    rpn([features], SIZES, small_samples())[1][loss].backward()
    assert features.grad is not None
    own = {name: p.grad for name, p in rpn.named_parameters() if p.grad is not None}
    return features.grad, own


@pytest.mark.parametrize("loss", ["loss_rpn_cls", "loss_rpn_loc"])
def test_a_scaled_input_divides_the_gradient_into_the_map_by_ten_and_no_other(loss: str) -> None:
    into_map, own = gradients(VOC_C4, loss)
    whole_into_map, whole_own = gradients(replace(VOC_C4, rpn_gradient="none"), loss)
    assert whole_into_map.abs().max() > 0
    torch.testing.assert_close(into_map, 0.1 * whole_into_map)
    assert own.keys() == whole_own.keys() >= {"input_norm.weight", "convolution.0.weight"}
    assert all(torch.equal(own[name], whole_own[name]) for name in own)


def test_a_weighted_loss_divides_every_gradient_by_ten() -> None:
    into_map, own = gradients(replace(VOC_C4, rpn_gradient="loss_weight"), "loss_rpn_cls")
    whole_into_map, whole_own = gradients(replace(VOC_C4, rpn_gradient="none"), "loss_rpn_cls")
    # the loss is float32, and each of its gradients rounded once
    for grad, whole in [
        (into_map, whole_into_map),
        *((own[name], whole_own[name]) for name in own),
    ]:
        atol = 64 * torch.finfo(torch.float32).eps * 0.1 * float(whole.abs().max())
        torch.testing.assert_close(grad, 0.1 * whole, rtol=0, atol=atol)


def test_a_lower_learning_rate_is_the_optimizers_business() -> None:
    lower = gradients(replace(VOC_C4, rpn_gradient="lr_mult"), "loss_rpn_cls")
    whole = gradients(replace(VOC_C4, rpn_gradient="none"), "loss_rpn_cls")
    assert torch.equal(lower[0], whole[0])


@pytest.mark.parametrize(("recipe", "has_norm"), [(VOC_C4, 1), (VOC_C4_MOCO, 0), (VOC_C4_NONE, 0)])
def test_only_co2_puts_a_norm_in_front_of_the_rpn(recipe: DetectorRecipe, has_norm: int) -> None:
    rpn = c4_rpn(recipe)
    norms = [name for name, m in rpn.named_modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms == ["input_norm"] * has_norm


def test_the_rpns_own_norm_takes_the_place_of_a_bias() -> None:
    rpn = c4_rpn(replace(VOC_C4_NONE, normed=("rpn_head",)))
    assert isinstance(rpn.convolution[1], nn.BatchNorm2d)
    assert rpn.convolution[0].bias is None


def test_knowing_nothing_costs_ln_2_for_every_wished_for_anchor() -> None:
    recipe = replace(VOC_C4_NONE, rpn_samples=10**6)
    rpn = RPN(recipe, channels=CHANNELS, strides_px=(16,), norm=nn.BatchNorm2d)
    nn.init.zeros_(rpn.objectness.weight)
    few = Sample(
        image=torch.zeros(3, 96, 128, dtype=torch.uint8),
        boxes=torch.zeros(0, 4),
        classes=torch.zeros(0, dtype=torch.int64),
    )
    losses = rpn([torch.randn(1, CHANNELS, 6, 8)], [(96, 128)], [few])[1]
    # a sum of 720 terms in float32
    known = math.log(2) * 6 * 8 * 15 / 10**6
    assert losses["loss_rpn_cls"].item() == pytest.approx(known, rel=1e-5)
    assert losses["loss_rpn_loc"].item() == 0


def test_fifteen_anchors_stand_on_the_map_of_c4_and_three_on_each_level_of_a_pyramid() -> None:
    c4 = RPN(VOC_C4_NONE, channels=CHANNELS, strides_px=(16,), norm=nn.BatchNorm2d)
    levels = (4, 8, 16, 32, 64)
    fpn = RPN(COCO_FPN, channels=CHANNELS, strides_px=levels, norm=nn.BatchNorm2d)
    assert c4.cells.shape == (1, 15, 4)
    assert fpn.cells.shape == (5, 3, 4)
    sides = (fpn.cells[:, 1, 2] - fpn.cells[:, 1, 0]).tolist()
    assert sides == pytest.approx([32, 64, 128, 256, 512])


def test_candidates_are_the_best_of_each_level_with_their_own_deltas() -> None:
    logits = [torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[9.0]])]
    anchors = [torch.tensor([[0.0, 0.0, 2.0 * i, 2.0]]).repeat(1, 1) for i in (1, 2, 3)]
    deltas = [torch.zeros(1, 3, 4), torch.zeros(1, 1, 4)]
    deltas[0][0, 1, 1] = 0.5  # the best of the first level moves down by half its height
    boxes, scores, levels = candidates(logits, deltas, [torch.cat(anchors), anchors[0]], 2)
    assert scores.tolist() == [[3, 2, 9]]
    assert levels.tolist() == [0, 0, 1]
    assert boxes.tolist() == [[[0, 1, 4, 3], [0, 0, 6, 2], [0, 0, 2, 2]]]


def test_proposals_are_inside_the_image_and_as_many_as_the_recipe_allows() -> None:
    rpn = c4_rpn(VOC_C4_NONE).eval()
    proposals, losses = rpn([shared_map()], SIZES, None)
    assert losses == {}
    for boxes, (height, width) in zip(proposals, SIZES, strict=True):
        assert len(boxes) == rpn.recipe.rpn_proposals[1]
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert (boxes[:, 2:] <= torch.tensor([width, height])).all()


def test_an_object_that_no_anchor_fits_is_learned_all_the_same() -> None:
    sample = small_samples(1)[0]
    thin = torch.tensor([[10.0, 30.0, 110.0, 31.0]])
    losses = c4_rpn(VOC_C4_NONE)([shared_map()[:1]], SIZES[:1], [replace(sample, boxes=thin)])[1]
    assert losses["loss_rpn_loc"] > 0


def test_what_is_not_finite_is_not_proposed() -> None:
    rpn = c4_rpn(VOC_C4_NONE).eval()
    nn.init.constant_(rpn.get_parameter("objectness.bias"), float("inf"))
    assert [len(boxes) for boxes in rpn([shared_map()], SIZES, None)[0]] == [0, 0]


def test_a_diverged_training_says_so() -> None:
    with pytest.raises(FloatingPointError, match="not finite"):
        c4_rpn(VOC_C4_NONE)([shared_map() * float("nan")], SIZES, small_samples())
