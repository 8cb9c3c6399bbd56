"""detectron2's own DefaultPredictor opens a trained detector and finds the same objects."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from pycocotools import mask as coco_mask

from pretrain.running.processes import Process
from tests.transfer.detection.fixed_detector import fill, lean, settle_at_once
from tests.transfer.detection.parity import BOX_PX, CASES, NUM_CLASSES, SCORE
from tests.transfer.detection.small_samples import small_samples
from tests.transfer.detection.tiny_training import tiny_scenes
from transfer.detection import recipe as recipes
from transfer.detection.detectron2_engine import (
    CONFIG_FILE,
    build_detector,
    config,
    load_config,
    silence_known_warnings,
    write_files,
)
from transfer.detection.results import detect
from transfer.detection.samples import upright_image

pytestmark = pytest.mark.detectron2


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["resnet18", "resnet50"])
@pytest.mark.parametrize("name", CASES)
def test_default_predictor_finds_the_same(name: str, arch: str, tmp_path: Path) -> None:
    with silence_known_warnings():
        from detectron2.engine import DefaultPredictor

    recipe = replace(lean(CASES[name]), test_short_px=64, long_px=100)
    detector = build_detector(recipe, arch=arch, num_classes=NUM_CLASSES, norm="BN")
    fill(detector.state_dict())
    settle_at_once(detector)
    with torch.no_grad():
        detector.train()(small_samples(2, NUM_CLASSES))
    write_files(detector, "coco17", tmp_path / "files")
    scenes = tiny_scenes(tmp_path / "images")
    with silence_known_warnings():
        predict = DefaultPredictor(load_config(tmp_path / "files" / CONFIG_FILE))
        result = detect(detector, scenes, recipe, Process(device=torch.device("cpu")))
        assert sum(len(ours.boxes) for ours in result) > 20
        for index, ours in enumerate(result):
            rgb = np.asarray(upright_image(scenes, index))
            theirs = predict(rgb[..., ::-1])["instances"].get_fields()
            assert torch.equal(ours.classes, theirs["pred_classes"])
            assert torch.allclose(ours.scores, theirs["scores"], rtol=0, atol=SCORE)
            assert torch.allclose(ours.boxes, theirs["pred_boxes"].tensor, rtol=0, atol=BOX_PX)
            if ours.masks is not None:
                size = [ours.height, ours.width]
                encoded = [{"size": size, "counts": counts} for counts in ours.masks]
                decoded = coco_mask.decode(encoded).transpose(2, 0, 1).astype(bool)
                assert (decoded == theirs["pred_masks"].numpy()).all()
            if ours.keypoints is not None:
                keypoints = theirs["pred_keypoints"]
                assert torch.allclose(ours.keypoints, keypoints, rtol=0, atol=BOX_PX)


def test_config_names_detectron2s_datasets_if_the_classes_agree(tmp_path: Path) -> None:
    with silence_known_warnings():
        from detectron2.data import MetadataCatalog

    for dataset, num_classes, recipe, test in [
        ("coco17", 80, recipes.COCO_FPN, "coco_2017_val"),
        ("coco17_keypoints", 1, recipes.COCO_FPN_KEYPOINTS, "keypoints_coco_2017_val"),
        ("voc0712", 20, recipes.VOC_C4, "voc_2007_test"),
        ("voc0712", 3, recipes.VOC_C4, ""),
    ]:
        tiny = recipe.tiny()
        detector = build_detector(tiny, arch="resnet18", num_classes=num_classes, norm="BN")
        write_files(detector, dataset, tmp_path)
        opened = load_config(tmp_path / CONFIG_FILE)
        expected = (test,) if test else ()
        assert expected == opened.DATASETS.TEST
        if test:
            assert len(MetadataCatalog.get(test).thing_classes) == num_classes
        requested = config(tiny, arch="resnet18", num_classes=num_classes, norm="BN")
        for node in (requested, opened):
            node.MODEL.WEIGHTS, node.DATASETS.TRAIN, node.DATASETS.TEST = "", (), ()
        assert yaml.safe_load(opened.dump()) == yaml.safe_load(requested.dump())
