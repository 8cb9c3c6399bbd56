"""detectron2's detector is configured as its own files, except for intended differences."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from transfer.detection import recipe as recipes
from transfer.detection.detectron2_engine import config

pytestmark = pytest.mark.detectron2


SET_BY_OUR_TASKS = {
    "MODEL.META_ARCHITECTURE": "rcnn_with_added_layers",
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
        with subtests.test(name=name):
            theirs, recipe = settings_of(file), getattr(recipes, name)
            ours = flat(config(recipe, arch="resnet50", num_classes=num_classes, norm="SyncBN"))
            added = {key for key in ours if key.startswith("MODEL.SSL_BENCHMARK.")}
            assert ours.keys() == theirs.keys() | added
            differing = {key: value for key, value in theirs.items() if value != ours[key]}
            differing = {key: ours[key] for key in differing}
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
