"""Images and objects arrive as detectron2's mapper would hand them on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.transfer.detection.scenes import scene
from tests.transfer.detection.tiny_training import RECIPE, tiny_scenes
from transfer.datasets.expected import DataError
from transfer.datasets.scenes import Scenes
from transfer.detection.detector import Sample
from transfer.detection.detectron2_engine import silence_known_warnings
from transfer.detection.recipe import Finds
from transfer.detection.samples import image_for_test, resize_sample, resized_size, training_sample

LEFT, RIGHT = 5, 6
"""COCO's left and right shoulder."""

ROUNDING_PX = 4 * 80 * 2**-23
"""A few operations in float32 on up to 80 px."""


def one_scene(folder: Path, **changes: Any) -> Scenes:
    """Write a black 40 x 20 px image with a white column and one object."""
    pixels = np.zeros((20, 40, 3), dtype=np.uint8)
    pixels[:, 0] = 255
    Image.fromarray(pixels).save(folder / "0.png")
    keypoints = np.zeros((1, 17, 3))
    keypoints[0, LEFT] = [9, 4, 2]
    outline = np.array([4.0, 2.0, 10.0, 2.0, 10.0, 12.0])
    shapes = {"polygons": ((outline,),), "keypoints": keypoints}
    item = scene("0.png", 0, 40, 20, [[4.0, 2.0, 10.0, 12.0]], [0], **shapes)
    return Scenes(folder, [replace(item, **changes)], ("a",), category_ids=(1,))


def resized(
    folder: Path, finds: Finds, short_px: int = 20, *, flipped: bool = False, **changes: Any
) -> Sample:
    """That image and its object."""
    recipe = replace(RECIPE, finds=finds)
    scenes = one_scene(folder, **changes)
    return resize_sample(scenes, 0, recipe, short_px=short_px, flipped=flipped)


def test_the_short_side_rules_until_the_long_side_is_full() -> None:
    assert resized_size((640, 480), 800, 1333) == (1067, 800)
    assert resized_size((1000, 400), 800, 1333) == (1333, 533)
    assert resized_size((50, 75), 100, 1333) == (100, 150)


def test_objects_grow_with_the_image_and_a_flip_mirrors_both(tmp_path: Path) -> None:
    large = resized(tmp_path, "boxes", 40)
    assert large.image.shape == (3, 40, 80)
    assert large.boxes.tolist() == [[8, 4, 20, 24]]
    flipped = resized(tmp_path, "masks", flipped=True)
    assert flipped.image[:, :, -1].eq(255).all()
    assert flipped.image[:, :, :-1].eq(0).all()
    assert flipped.boxes.tolist() == [[30, 2, 36, 12]]
    assert flipped.polygons is not None
    assert flipped.polygons[0][0].tolist() == [36, 2, 30, 2, 30, 12]


def test_keypoint_is_mirrored_at_its_pixel_center(tmp_path: Path) -> None:
    plain, mirrored = (
        resized(tmp_path, "keypoints", 40, flipped=flipped).keypoints for flipped in (False, True)
    )
    assert plain is not None
    assert mirrored is not None
    assert plain[0, LEFT].tolist() == [19, 9, 2]
    assert mirrored[0, RIGHT].tolist() == [80 - 19, 9, 2]
    assert mirrored[0, LEFT].tolist() == [0, 0, 0]


def test_what_lies_outside_of_the_image_is_dropped(tmp_path: Path) -> None:
    keypoints = np.zeros((1, 17, 3))
    keypoints[0, LEFT] = [40, 4, 2]
    points = resized(tmp_path, "keypoints", keypoints=keypoints).keypoints
    assert points is not None
    assert points.eq(0).all()
    nothing = resized(tmp_path, "boxes", boxes=np.array([[41.0, 2.0, 50.0, 12.0]]))
    assert (nothing.boxes.shape, nothing.classes.shape) == ((0, 4), (0,))


def test_crowds_are_not_learned_but_difficult_objects_are(tmp_path: Path) -> None:
    crowds = training_sample(tiny_scenes(tmp_path / "coco"), 0, RECIPE, 0)
    difficult = training_sample(tiny_scenes(tmp_path / "voc", coco=False), 0, RECIPE, 0)
    assert (len(crowds.boxes), len(difficult.boxes)) == (2, 3)


def test_size_and_flip_are_the_seeds(tmp_path: Path) -> None:
    scenes = tiny_scenes(tmp_path)
    samples = [training_sample(scenes, 0, RECIPE, (seed, 7)) for seed in range(20)]
    again = training_sample(scenes, 0, RECIPE, (3, 7))
    assert torch.equal(samples[3].image, again.image)
    assert {min(sample.image.shape[1:]) for sample in samples} == set(RECIPE.train_short_px)
    large = [s.boxes for s in samples if min(s.image.shape[1:]) == 48]
    assert len({tuple(boxes.flatten().tolist()) for boxes in large}) == 2


def test_exif_orientation_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = one_scene(tmp_path)
    upright = Image.open(tmp_path / "0.png")
    exif = Image.Exif()
    exif[274] = 6  # a camera held upright: a quarter turn clockwise puts it right
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "0.png", exif=exif)
    left = [(tmp_path / "0.png").read_bytes()]
    monkeypatch.setattr(Path, "read_bytes", lambda _: left.pop())
    (tmp_path / "0.png").unlink()
    image = image_for_test(scenes, 0, replace(RECIPE, test_short_px=20))
    assert image[:, :, 0].eq(255).all()


def test_an_image_of_another_size_than_noted_is_named(tmp_path: Path) -> None:
    scenes = one_scene(tmp_path, width=41)
    with pytest.raises(DataError, match=r"0\.png.* 40 x 20 px.* 41 x 20"):
        training_sample(scenes, 0, RECIPE, 0)


@pytest.mark.detectron2
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("finds", ["boxes", "masks", "keypoints"])
def test_samples_equal_those_of_detectron2s_mapper(
    tmp_path: Path, finds: Finds, flipped: bool
) -> None:
    scenes = tiny_scenes(tmp_path)
    recipe = replace(RECIPE, finds=finds, long_px=70)
    mapper = detectron2_mapper(finds, flipped, 53, recipe.long_px)
    for index in range(len(scenes)):
        sample = resize_sample(scenes, index, recipe, short_px=53, flipped=flipped)
        with silence_known_warnings():
            mapped = mapper(as_record(scenes, index))
        objects = mapped["instances"]
        assert torch.equal(sample.image, mapped["image"])
        torch.testing.assert_close(sample.boxes, objects.gt_boxes.tensor, rtol=0, atol=ROUNDING_PX)
        assert torch.equal(sample.classes, objects.gt_classes)
        if sample.polygons is not None:
            theirs = objects.gt_masks.polygons
            for ours, second in zip(sample.polygons, theirs, strict=True):
                np.testing.assert_allclose(
                    np.stack(ours), np.stack(second), rtol=0, atol=ROUNDING_PX
                )
        if sample.keypoints is not None:
            torch.testing.assert_close(
                sample.keypoints, objects.gt_keypoints.tensor, rtol=0, atol=ROUNDING_PX
            )


def detectron2_mapper(finds: Finds, flipped: bool, short_px: int, long_px: int) -> Any:
    """Whose draws are settled."""
    with silence_known_warnings():
        from detectron2.data import DatasetMapper
        from detectron2.data import transforms as T

        resize = T.ResizeShortestEdge(short_px, long_px, "choice")
        return DatasetMapper(
            True,
            augmentations=[resize, T.RandomFlip(1.0 if flipped else 0.0)],
            image_format="RGB",
            use_instance_mask=finds == "masks",
            use_keypoint=finds == "keypoints",
            keypoint_hflip_indices=[0] + [i + 1 if i % 2 else i - 1 for i in range(1, 17)],
        )


def as_record(scenes: Scenes, index: int) -> dict[str, Any]:
    """A scene in detectron2's form."""
    scene = scenes.scene(index)
    annotations = [
        {
            "bbox": box.tolist(),
            "bbox_mode": 0,  # left, top, right, bottom
            "category_id": int(number),
            "iscrowd": int(aside),
        }
        for box, number, aside in zip(scene.boxes, scene.classes, scene.aside, strict=True)
    ]
    shapes = zip(annotations, scene.polygons or (), scene.keypoints, strict=True)  # type: ignore[arg-type]
    for annotation, outlines, points in shapes:
        annotation["segmentation"] = [outline.tolist() for outline in outlines]
        annotation["keypoints"] = (points + np.array([0.5, 0.5, 0])).flatten().tolist()
    return {
        "file_name": str(scenes.source.folder / scene.name),
        "width": scene.width,
        "height": scene.height,
        "annotations": annotations,
    }
