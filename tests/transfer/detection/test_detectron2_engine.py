"""detectron2's detector as the recipe says: norms, places of weights, gradients, inputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.transfer.detection.parity import in_double
from tests.transfer.detection.small_samples import small_samples
from transfer.backbone import random_backbone
from transfer.detection import recipe as recipes
from transfer.detection.detectron2_engine import build_detector, config
from transfer.detection.engines import is_available
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.sample import Detector, ResizedDetections, Sample

pytestmark = pytest.mark.detectron2


def small(recipe: DetectorRecipe, *, arch: str = "resnet18") -> tuple[Detector, Any]:
    """A detector of one class in training mode, and detectron2's network in it."""
    torch.manual_seed(0)
    detector = build_detector(recipe.tiny(), arch=arch, num_classes=1, norm="BN")
    rcnn: Any = detector.network.rcnn
    return detector, rcnn


def norms_below(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def total_loss(detector: Detector, samples: Sequence[Sample]) -> Tensor:
    losses: dict[str, Tensor] = detector.network(samples)
    return torch.stack(list(losses.values())).sum()


def test_it_is_available_where_these_tests_run() -> None:
    assert is_available()


SET_BY_OUR_TASKS = {
    "MODEL.DEVICE": "cpu",
    "MODEL.WEIGHTS": "",
    "DATASETS.TRAIN": (),
    "DATASETS.TEST": (),
}
OF_TORCHVISIONS_BACKBONES = {
    "INPUT.FORMAT": "RGB",
    "MODEL.PIXEL_MEAN": pytest.approx([123.675, 116.28, 103.53]),
    "MODEL.PIXEL_STD": pytest.approx([58.395, 57.12, 57.375]),
    "MODEL.RESNETS.STRIDE_IN_1X1": False,
}
TRAINED = {
    "MODEL.BACKBONE.FREEZE_AT": 0,
    "MODEL.RESNETS.NORM": "SyncBN",
    "TEST.PRECISE_BN.ENABLED": True,
}
FPN = TRAINED | {"MODEL.FPN.NORM": "SyncBN"}
"""moco-FPN."""
FOUR_CONVOLUTIONS = {
    "MODEL.BACKBONE.FREEZE_AT": 0,
    # theirs is the 3x schedule
    "SOLVER.MAX_ITER": 90_000,
    "SOLVER.STEPS": (60_000, 80_000),
}
C4 = TRAINED | {
    # theirs is shorter; MoCo's and CO2's papers say 24k
    "SOLVER.MAX_ITER": 24_000,
    "SOLVER.STEPS": (18_000, 22_000),
}
VOC = "PascalVOC-Detection/faster_rcnn_R_50_C4"
FOUR = "Misc/mask_rcnn_R_50_FPN_3x_syncbn"


def test_settings_are_those_of_detectron2s_own_files_but_for_a_few(
    subtests: pytest.Subtests,
) -> None:
    for name, file, num_classes, intended in [
        ("COCO_FPN", "COCO-Detection/faster_rcnn_R_50_FPN_1x", 80, FPN),
        ("COCO_FPN_MASKS", "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_1x", 80, FPN),
        ("COCO_FPN_KEYPOINTS", "COCO-Keypoints/keypoint_rcnn_R_50_FPN_1x", 1, FPN),
        ("COCO_4CONV1FC_MASKS", FOUR, 80, FOUR_CONVOLUTIONS),
        (
            "COCO_4CONV1FC",
            FOUR,
            80,
            FOUR_CONVOLUTIONS | {"MODEL.MASK_ON": False, "MODEL.ROI_MASK_HEAD.NORM": ""},
        ),
        # norms that the papers add to c4 are modules, not settings
        ("VOC_C4", VOC, 20, C4),
        ("VOC_C4_MOCO", VOC, 20, C4),
        ("VOC_C4_NONE", VOC, 20, C4),
    ]:
        with subtests.test(name=name, file=file, num_classes=num_classes, intended=intended):
            theirs = settings_of(file)
            ours = flat(
                config(
                    getattr(recipes, name), arch="resnet50", num_classes=num_classes, norm="SyncBN"
                )
            )
            assert ours.keys() == theirs.keys()
            differing = {key: value for key, value in ours.items() if value != theirs[key]}
            assert differing == SET_BY_OUR_TASKS | OF_TORCHVISIONS_BACKBONES | intended


def settings_of(file: str) -> dict[str, Any]:
    """Return the settings in a file of detectron2's package."""
    import detectron2
    from detectron2.config import get_cfg

    # by its path: the module model_zoo needs an old setuptools
    files = Path(detectron2.__file__).parent / "model_zoo" / "configs"
    settings = get_cfg()
    settings.merge_from_file(str(files / f"{file}.yaml"))
    return flat(settings)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"MODEL.RPN.NMS_THRESH": 0.7, ...}"""
    values: dict[str, Any] = {}
    for key, value in settings.items():
        deeper = isinstance(value, Mapping)
        values |= flat(value, f"{prefix}{key}.") if deeper else {f"{prefix}{key}": value}
    return values


@pytest.mark.parametrize(
    ("recipe", "counts"),
    [
        (recipes.COCO_FPN, {"fpn": 8, "box": 0}),
        (recipes.COCO_4CONV1FC_MASKS, {"fpn": 8, "box": 4, "mask": 4}),
        (
            replace(recipes.COCO_FPN_KEYPOINTS, normed=("keypoint_head", "rpn_head")),
            {"fpn": 0, "box": 0, "keypoint": 8, "rpn": 1},
        ),
    ],
)
def test_norms_stand_in_the_parts_that_the_recipe_names(
    recipe: DetectorRecipe, counts: dict[str, int]
) -> None:
    _, rcnn = small(recipe)
    heads = rcnn.roi_heads
    parts = {
        "fpn": nn.ModuleList(
            [part for name, part in rcnn.backbone.named_children() if name.startswith("fpn")]
        ),
        "box": heads.box_head,
        "mask": getattr(heads, "mask_head", nn.Identity()),
        "keypoint": getattr(heads, "keypoint_head", nn.Identity()),
        "rpn": rcnn.proposal_generator,
    }
    assert {name: norms_below(part) for name, part in parts.items()} == {
        "mask": 0,
        "keypoint": 0,
        "rpn": 0,
        **counts,
    }


def test_a_norm_behind_a_convolution_replaces_its_bias() -> None:
    recipe = replace(recipes.COCO_FPN_KEYPOINTS, normed=("keypoint_head", "rpn_head"))
    _, rcnn = small(recipe)
    assert rcnn.proposal_generator.rpn_head.conv.bias is None
    assert rcnn.roi_heads.keypoint_head.conv_fcn8.bias is None


def test_mocos_norm_sees_the_map_of_layer4() -> None:
    _, rcnn = small(recipes.VOC_C4_MOCO)
    norm = rcnn.roi_heads.res5.norm
    norm.weight.data.fill_(0)
    norm.bias.data.fill_(0.5)
    features = rcnn.roi_heads.res5(torch.randn(2, 256, 14, 14))
    assert torch.equal(features, torch.full((2, 512, 7, 7), 0.5))


def test_co2s_norm_feeds_the_rpn_and_not_the_heads() -> None:
    detector, rcnn = small(recipes.VOC_C4)
    in_double(detector.network)
    seen: dict[str, Tensor] = {}
    rcnn.proposal_generator.rpn.rpn_head.conv.register_forward_pre_hook(
        lambda _, inputs: seen.update(rpn=inputs[0])
    )
    rcnn.roi_heads.pooler.register_forward_pre_hook(
        lambda _, inputs: seen.update(heads=inputs[0][0])
    )
    rcnn.backbone.register_forward_hook(lambda _, __, output: seen.update(shared=output["res4"]))
    total_loss(detector, small_samples())
    assert torch.equal(seen["heads"], seen["shared"])
    means = seen["rpn"].mean(dim=(0, 2, 3))
    torch.testing.assert_close(means, torch.zeros_like(means))
    variances = seen["rpn"].var(dim=(0, 2, 3), correction=0)
    # v / (v + 1e-5), with variances v of at least 1e-3
    torch.testing.assert_close(variances, torch.ones_like(means), atol=1e-2, rtol=0)


def rpn_gradients(factor: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return gradients of the RPN's losses alone: in the shared layers and in the RPN."""
    # all anchors are sampled: nothing is left to chance
    recipe = replace(
        recipes.VOC_C4.tiny(),
        rpn_gradient_factor=factor,
        rpn_samples=2048,
        rpn_positive_share=1.0,
    )
    torch.manual_seed(0)
    detector = build_detector(recipe, arch="resnet18", num_classes=1, norm="BN")
    in_double(detector.network)  # norms enlarge roundings of gradients
    losses = detector.network(small_samples())
    (losses["loss_rpn_cls"] + losses["loss_rpn_loc"]).backward()
    gradients = {
        name: values.grad
        for name, values in detector.network.named_parameters()
        if values.grad is not None
    }
    own = {name: g for name, g in gradients.items() if detector.is_rpn(name)}
    return {name: g for name, g in gradients.items() if name not in own}, own


def test_what_the_rpn_sends_into_the_shared_map_is_a_tenth() -> None:
    whole, own_whole = rpn_gradients(1.0)
    tenth, own_tenth = rpn_gradients(0.1)
    assert len(whole) > 40
    for name, gradient in whole.items():
        torch.testing.assert_close(tenth[name], 0.1 * gradient)
    assert len(own_whole) == 8  # three convolutions and the norm
    assert all(torch.equal(own_tenth[name], own_whole[name]) for name in own_whole)


def test_the_weight_of_the_rpns_losses_is_another_reading() -> None:
    losses = {}
    for reading in ("none", "loss_weight"):
        recipe = replace(
            recipes.VOC_C4.tiny(), rpn_gradient=reading, rpn_samples=2048, rpn_positive_share=1.0
        )
        torch.manual_seed(0)
        detector = build_detector(recipe, arch="resnet18", num_classes=1, norm="BN")
        losses[reading] = detector.network(small_samples())
    for name in ("loss_rpn_cls", "loss_rpn_loc"):
        torch.testing.assert_close(losses["loss_weight"][name], 0.1 * losses["none"][name])


def test_a_backbone_is_placed_in_full(subtests: pytest.Subtests) -> None:
    for recipe in [recipes.COCO_FPN, recipes.VOC_C4]:
        for arch in ["resnet18", "resnet50"]:
            with subtests.test(recipe=recipe, arch=arch):
                backbone = random_backbone(arch=arch, stem="imagenet", seed=1)
                detector, rcnn = small(recipe, arch=arch)
                assert detector.load_backbone(backbone.state_dict) == len(backbone.state_dict)
                layer4 = (
                    rcnn.backbone.bottom_up.res5 if recipe.neck == "fpn" else rcnn.roi_heads.res5
                )
                assert torch.equal(
                    layer4[0].shortcut.weight, backbone.state_dict["layer4.0.downsample.0.weight"]
                )


@pytest.mark.parametrize("lacking", ["conv1.weight", "layer3.1.bn2.running_mean"])
def test_a_backbone_that_lacks_a_tensor_is_refused(lacking: str) -> None:
    state_dict = dict(random_backbone(arch="resnet18", stem="imagenet", seed=1).state_dict)
    del state_dict[lacking]
    with pytest.raises(ValueError, match=r"1 of 12[0-9] places have no tensor"):
        small(recipes.COCO_FPN)[0].load_backbone(state_dict)


def test_a_backbone_of_another_architecture_is_refused() -> None:
    state_dict = random_backbone(arch="resnet34", stem="imagenet", seed=1).state_dict
    with pytest.raises(ValueError, match="have no place in the detector"):
        small(recipes.VOC_C4)[0].load_backbone(state_dict)


def test_an_impossible_detector_is_refused() -> None:
    recipe = replace(recipes.VOC_C4, finds="masks")
    with pytest.raises(ValueError, match="boxes only"):
        build_detector(recipe, arch="resnet18", num_classes=1, norm="BN")


def test_an_image_without_objects_is_background() -> None:
    detector, _ = small(recipes.COCO_FPN_MASKS)
    first, *_ = small_samples()
    empty = replace(
        first, boxes=first.boxes[:0], classes=first.classes[:0], polygons=(), keypoints=None
    )
    losses = detector.network([empty, empty])
    assert losses["loss_box_reg"] == losses["loss_mask"] == losses["loss_rpn_loc"] == 0


@pytest.mark.parametrize(
    "recipe",
    [recipes.COCO_FPN_MASKS, recipes.COCO_FPN_KEYPOINTS, recipes.VOC_C4],
    ids=["masks", "keypoints", "c4"],
)
def test_one_step_moves_every_parameter(recipe: DetectorRecipe) -> None:
    detector, _ = small(recipe)
    before = {name: values.clone() for name, values in detector.network.named_parameters()}
    total_loss(detector, small_samples()).backward()
    torch.optim.SGD(detector.network.parameters(), lr=0.1).step()
    still = [
        name
        for name, values in detector.network.named_parameters()
        if torch.equal(values, before[name])
    ]
    assert still == []


def test_no_detections_are_empty_tensors() -> None:
    detector, _ = small(replace(recipes.COCO_FPN_MASKS, min_score=1.0))
    detector.network.eval()
    found: ResizedDetections = detector.find([small_samples()[0].image])[0]
    assert found.masks is not None
    assert (found.boxes.shape, found.masks.shape) == ((0, 4), (0, 28, 28))
