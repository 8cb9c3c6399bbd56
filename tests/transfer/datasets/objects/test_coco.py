"""COCO as pycocotools and detectron2 understand it, and every broken annotation named."""

import contextlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO

from tests.transfer.datasets.conftest import CopyOf, real_data
from transfer.datasets.catalog import open_any, open_scenes
from transfer.datasets.check import check, register_subsets, require
from transfer.datasets.expected import SMALL_DATA, DataError, Sizes, mark_small
from transfer.datasets.objects.box_layouts import XYWH, XYXY
from transfer.datasets.scenes import Scenes, usable_for_training
from transfer.detection.coco_ap import coco_ap
from transfer.detection.results import Detections

INSTANCES = Path("coco", "annotations", "instances_val2017.json")
PERSONS = Path("coco", "annotations", "person_keypoints_val2017.json")
REAL = ("coco17", "coco17_keypoints")


@contextlib.contextmanager
def rewritten(file: Path) -> Iterator[dict[str, Any]]:
    """Let the content of a JSON file be changed."""
    content = json.loads(file.read_text())
    yield content
    file.write_text(json.dumps(content))


@pytest.fixture
def data(copy_of: CopyOf) -> Path:
    return copy_of("coco17")


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.data)])
@pytest.mark.parametrize(("key", "file"), [("coco17", INSTANCES), ("coco17_keypoints", PERSONS)])
def test_scenes_hold_what_pycocotools_reads(
    key: str, file: Path, real: bool, small_data: Path
) -> None:
    data = real_data(key) if real else small_data
    scenes = open_scenes(key, data, "test")
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO(data / file)
    assert [scene.image_id for scene in scenes] == sorted(coco.imgs)
    for scene in scenes:
        image, entries = coco.imgs[scene.image_id], coco.imgToAnns[scene.image_id]
        assert (scene.width, scene.height) == (image["width"], image["height"])
        assert Path(scene.name).name == image["file_name"]
        left_top = np.array([entry["bbox"] for entry in entries]).reshape(-1, 4)
        assert np.allclose(scene.boxes[:, 2:] - scene.boxes[:, :2], left_top[:, 2:])
        assert np.array_equal(scene.boxes[:, :2], left_top[:, :2])
        categories = [scenes.category_ids[c] for c in scene.classes]
        assert categories == [entry["category_id"] for entry in entries]
        assert scene.aside.tolist() == [bool(entry["iscrowd"]) for entry in entries]
        if scene.keypoints is not None:
            points = [person.ravel().tolist() for person in scene.keypoints]
            assert points == [entry["keypoints"] for entry in entries]
            continue
        assert scene.polygons is not None
        for outlines, entry in zip(scene.polygons, entries, strict=True):
            published = [] if entry["iscrowd"] else entry["segmentation"]
            assert [outline.tolist() for outline in outlines] == published


def test_classes_are_the_categories_in_the_order_of_their_numbers(data: Path) -> None:
    with rewritten(data / INSTANCES) as content:
        content["categories"].reverse()
    scenes = open_scenes("coco17", data, "test")
    assert scenes.category_ids == (1, 3, 17, 18, 62)
    assert scenes.class_names == ("person", "car", "cat", "dog", "chair")


NAN = float("nan")
LEFT_OUT = object()
BROKEN: dict[str, dict[str, Any]] = {
    "the image is not listed": {"image_id": 999},
    "the image is not listed ": {"image_id": [1]},
    "its id is not an integer": {"id": [1]},
    "its id is not an integer ": {"id": LEFT_OUT},
    "category [1] is not among the": {"category_id": [1]},
    "category 90 is not among the": {"category_id": 90},
    "its iscrowd is None": {"iscrowd": LEFT_OUT},
    "its area is None": {"area": LEFT_OUT},
    "its area is 12,": {"area": "12"},
    "its run lengths are None, not integers": {
        "iscrowd": 1,
        "segmentation": {"size": [96, 128], "counts": None},
    },
    "box [10, 10, -3, 4] has a negative size": {"bbox": [10, 10, -3, 4]},
    "box [10, 10, nan, 4] is not four finite numbers": {"bbox": [10, 10, NAN, 4]},
    "box [10, 10, 5] is not four finite numbers": {"bbox": [10, 10, 5]},
    "box [128, 10, 20, 20] lies outside the image": {"bbox": [128, 10, 20, 20]},
    "it has no outline of three points": {"segmentation": [[1, 2, 3, 4], [1] * 7]},
    "its outline has a value that is not a finite": {"segmentation": [[1, 2, 3, 4, 5, "x"]]},
    "its mask is run lengths, which only crowds have": {"segmentation": {"size": [96, 128]}},
    "its mask is [128, 96]": {
        "iscrowd": 1,
        "segmentation": {"size": [128, 96], "counts": [128 * 96]},
    },
    "its run lengths do not cover [96, 128]": {
        "iscrowd": 1,
        "segmentation": {"size": [96, 128], "counts": [3, 4]},
    },
}
BROKEN_PERSONS: dict[str, dict[str, Any]] = {
    "its area is nan": {"area": NAN},
    "its num_keypoints is None": {"num_keypoints": LEFT_OUT},
    "its keypoints are not 51 finite numbers": {"keypoints": [0] * 50},
    "its keypoints have the marks [0, 3]": {"keypoints": [0, 0, 3] + [0] * 48},
}


@pytest.mark.parametrize(
    ("key", "file", "broken"),
    [("coco17", INSTANCES, BROKEN), ("coco17_keypoints", PERSONS, BROKEN_PERSONS)],
)
def test_every_broken_annotation_is_named_and_left_out(
    key: str, file: Path, broken: dict[str, dict[str, Any]], copy_of: CopyOf
) -> None:
    data = copy_of(key)
    objects = sum(len(scene.boxes) for scene in open_scenes(key, data, "test"))
    with rewritten(data / file) as content:
        entries = content["annotations"]
        for entry, values in zip(entries, broken.values(), strict=False):
            entry.update(values)
            for name in [name for name, value in values.items() if value is LEFT_OUT]:
                del entry[name]
    report = check(key, data, decode=False)
    assert [p for p in report.problems if "annotation" in p] == list(report.faults)
    expected = [
        f"{file}: image {entry['image_id']}, annotation {entry.get('id')}: {reason.rstrip()}"
        for entry, reason in zip(entries, broken, strict=False)
    ]
    assert [line for line in expected if not any(f.startswith(line) for f in report.faults)] == []
    assert len(report.faults) == len(broken)
    remaining = sum(len(scene.boxes) for scene in open_scenes(key, data, "test"))
    assert remaining == objects - len(broken)
    with pytest.raises(DataError, match=f"{len(broken)} annotations broken") as error:
        require(key, data, tolerated=0)
    assert report.problems[0] in str(error.value)
    assert require(key, data, tolerated=len(broken)).num_bad == len(broken)


@pytest.mark.parametrize("box", [[10, 10, 0, 4], [10, 10, 400, 4]])
def test_a_box_without_area_or_one_that_passes_the_border_is_no_fault(
    box: list[int], data: Path
) -> None:
    with rewritten(data / INSTANCES) as content:
        content["annotations"][1]["bbox"] = box
    assert check("coco17", data, decode=False).ok


def test_image_of_wrong_size_is_skipped(data: Path) -> None:
    name = next(scene.name for scene in open_scenes("coco17", data, "test") if not len(scene.boxes))
    with rewritten(data / INSTANCES) as content:
        (image,) = (item for item in content["images"] if item["file_name"] == Path(name).name)
        image["width"] = 140
    for decode in (False, True):
        report = check("coco17", data, decode=decode)
        assert report.problems == (f"{name}: (128, 96) px, annotated as (140, 96)",)
    with pytest.raises(DataError, match="1 images are missing, too many, repeated or unusable"):
        require("coco17", data, tolerated=0)
    assert require("coco17", data, tolerated=1).unreadable == (name,)


def test_an_image_that_exif_turns_upright_has_its_annotated_size(data: Path) -> None:
    file = data / open_scenes("coco17", data, "test").name(0)
    with Image.open(file) as upright:
        exif = Image.Exif()
        exif[274] = 6
        upright.transpose(Image.Transpose.ROTATE_90).save(file, exif=exif)
    assert check("coco17", data, decode=True).ok


def test_a_file_that_is_not_cocos_is_named_with_advice(data: Path) -> None:
    lists = '"annotations": [{}], "categories": [{"id": 1'
    for content, message in {
        "{": "is not valid JSON",
        "[]": "is not a COCO annotation file",
        '{"images": [{}], "annotations": [{}]}': "it has no categories",
        '{"images": [1], "annotations": [], "categories": []}': "it has no images",
        '{"images": [], "annotations": [], "categories": []}': "it has no images",
        '{"images": [{}], ' + lists + "}]}": "without a name",
        '{"images": [{}], ' + lists + ', "name": "a"}]}': "an image without a number",
    }.items():
        (data / INSTANCES).write_text(content)
        with pytest.raises(DataError, match=rf"instances_val2017\.json.*{message}.*unpack"):
            open_scenes("coco17", data, "test")
    assert "an image without" in check("coco17", data, decode=False).problems[0]
    with pytest.raises(DataError, match="24 images are missing"):
        require("coco17", data, tolerated=0)


def test_an_image_of_0_px_or_listed_twice_counts_once(data: Path) -> None:
    with rewritten(data / INSTANCES) as content:
        content["images"][3]["width"] = 0
    report = check("coco17", data, decode=False)
    assert (report.counts["test"], report.num_bad) == ((23, 24), 1)
    assert require("coco17", data, tolerated=1) == report
    with rewritten(data / INSTANCES) as content:
        content["images"][4] = content["images"][5]
    report = check("coco17", data, decode=False)
    assert report.counts["test"] == (22, 24)
    assert report.num_bad - len(report.faults) == 2


def test_parts_of_one_file_count_its_faults_once(data: Path) -> None:
    with rewritten(data / str(INSTANCES).replace("val", "train")) as content:
        content["annotations"][0]["area"] = -1
        content["images"][0]["height"] = 0
    mark_small(data, "coco17", Sizes(classes=5, counts={"train": 35, "val": 12, "test": 24}))
    faulty = check("coco17", data, decode=False)
    assert [line for line in faulty.faults if "its area is -1" in line] == list(faulty.faults)
    assert (len(faulty.faults), faulty.num_bad) == (1, 2)


def numbered(content: dict[str, Any], change: dict[int, int]) -> None:
    """Give categories other numbers, and their objects, too."""
    for category in content["categories"]:
        category["id"] = change.get(category["id"], category["id"])
    for entry in content["annotations"]:
        entry["category_id"] = change.get(entry["category_id"], entry["category_id"])


def test_other_numbers_of_the_same_categories_change_no_class(data: Path) -> None:
    previous = open_scenes("coco17", data, "test")
    with rewritten(data / INSTANCES) as content:
        numbered(content, {1: 3, 3: 17, 17: 1})
    after = open_scenes("coco17", data, "test")
    assert (
        after.class_names
        == previous.class_names
        == open_scenes("coco17", data, "train").class_names
    )
    assert after.category_ids == (3, 17, 1, 18, 62)
    for item, second in zip(previous, after, strict=True):
        assert item.classes.tolist() == second.classes.tolist()
    assert check("coco17", data, decode=False).ok


def test_a_perfect_detector_has_ap_100_with_other_numbers(data: Path) -> None:
    with rewritten(data / INSTANCES) as content:
        numbered(content, {1: 62, 62: 1})
    scenes = open_scenes("coco17", data, "test")
    truth = json.loads((data / INSTANCES).read_text())["annotations"]
    names = {1: "chair", 62: "person", 3: "car", 17: "cat", 18: "dog"}
    learned = open_scenes("coco17", data, "train").class_names
    result = []
    for scene in scenes:
        ours = [a for a in truth if a["image_id"] == scene.image_id and not a["iscrowd"]]
        boxes = torch.tensor([a["bbox"] for a in ours], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        classes = [learned.index(names[a["category_id"]]) for a in ours]
        result.append(
            Detections(
                height=scene.height,
                width=scene.width,
                boxes=boxes,
                scores=torch.ones(len(ours)),
                classes=torch.tensor(classes, dtype=torch.int64),
            )
        )
    ap = coco_ap(result, scenes, ["bbox"])[0]["bbox"]
    assert {name: round(ap[f"AP/{name}"], 6) for name in learned} == dict.fromkeys(learned, 100)


def renamed(content: dict[str, Any]) -> None:
    content["categories"][2]["name"] = "tiger"


def without_one(content: dict[str, Any]) -> None:
    del content["categories"][4]


@pytest.mark.parametrize(
    ("change", "fields"),
    [(renamed, ("adds 'tiger'", "lacks 'cat'")), (without_one, ("lacks 'chair'",))],
)
def test_other_categories_in_val_than_in_train_are_refused(
    change: Callable[[dict[str, Any]], None], fields: tuple[str, ...], data: Path
) -> None:
    with rewritten(data / INSTANCES) as content:
        change(content)
    report = check("coco17", data, decode=False)
    assert all(fact in report.fatal[0] for fact in (str(INSTANCES), *fields))
    for do in (
        lambda: require("coco17", data, tolerated=10**6),
        lambda: register_subsets(["coco17"], data, tolerated=0),
    ):
        with pytest.raises(DataError, match="its categories differ from instances_train2017"):
            do()


def test_repeated_category_name_is_refused(copy_of: CopyOf) -> None:
    data = copy_of("coco17")
    with rewritten(data / PERSONS) as content:
        points = content["categories"][0]["keypoints"]
        points[1], points[2] = points[2], points[1]
    with pytest.raises(
        DataError, match=r"person.*right_eye', 'left_eye.*expected.*left_eye, right_"
    ):
        open_scenes("coco17_keypoints", data, "test")
    with rewritten(data / PERSONS) as content:
        del content["categories"][0]["keypoints"]  # nothing else is known
    assert check("coco17_keypoints", data, decode=False).ok
    with rewritten(data / INSTANCES) as content:
        content["categories"][1]["name"] = "person"
    with pytest.raises(DataError, match="several categories have the name 'person'"):
        open_scenes("coco17", data, "test")


def corners(box: list[float]) -> list[float]:
    left, top, width, height = box
    return [left, top, left + width, top + height]


def centers(box: list[float]) -> list[float]:
    left, top, width, height = box
    return [left + width / 2, top + height / 2, width, height]


def fractions(box: list[float]) -> list[float]:
    return [value / side for value, side in zip(box, (128, 96, 128, 96), strict=True)]


OTHER_LAYOUTS: dict[str, Callable[[list[float]], list[float]]] = {
    "left, top, right, bottom": corners,
    "center x, center y, width, height": centers,
    "top, left, height, width": lambda box: [box[1], box[0], box[3], box[2]],
    "top, left, bottom, right": lambda box: [corners(box)[i] for i in (1, 0, 3, 2)],
    "fractions of the image's width and height": lambda box: fractions(centers(box)),
}


@pytest.mark.parametrize("layout", OTHER_LAYOUTS)
def test_boxes_of_another_layout_are_refused_with_its_name(layout: str, data: Path) -> None:
    names = [INSTANCES, Path(str(INSTANCES).replace("val", "train"))]
    for name in names:
        with rewritten(data / name) as content:
            for entry in content["annotations"]:
                entry["bbox"] = OTHER_LAYOUTS[layout](entry["bbox"])
    report = check("coco17", data, decode=False)
    wrong = [line for line in report.faults if f"look like {layout}" in line]
    assert wrong
    assert all(f"expected {XYWH} in px" in line for line in wrong)
    assert {line.split(":")[0] for line in wrong} == {str(name) for name in names}
    with pytest.raises(DataError, match=f"look like {layout}"):
        require("coco17", data, tolerated=len(report.faults) - 1)


def test_tolerated_boxes_of_another_layout_are_left_out(data: Path) -> None:
    objects = sum(len(scene.boxes) for scene in open_scenes("coco17", data, "test"))
    with rewritten(data / INSTANCES) as content:
        right = [e for e in content["annotations"] if e["bbox"][0] > 40 and not e["iscrowd"]]
        for entry in right[:6]:
            entry["bbox"] = corners(entry["bbox"])
    report = check("coco17", data, decode=False)
    assert len(report.faults) == 6
    assert f"annotation {right[0]['id']}: box [" in report.faults[0]
    assert "contradicts its outlines: 6 of" in report.faults[0]
    assert require("coco17", data, tolerated=6) == report
    scenes = open_scenes("coco17", data, "test")
    assert sum(len(scene.boxes) for scene in scenes) == objects - 6
    assert len(scenes.faulty) == 6
    for scene in scenes:
        assert scene.polygons is not None
        assert len(scene.polygons) == len(scene.classes) == len(scene.aside) == len(scene.boxes)


def test_outlines_in_fractions_do_not_hide_boxes_in_fractions(data: Path) -> None:
    with rewritten(data / INSTANCES) as content:
        for entry in content["annotations"]:
            entry["bbox"] = fractions(entry["bbox"])
            if not entry["iscrowd"]:
                entry["segmentation"] = [
                    [value / (96 if k % 2 else 128) for k, value in enumerate(outline)]
                    for outline in entry["segmentation"]
                ]
    faults = check("coco17", data, decode=False).faults
    assert len(faults) == len(content["annotations"])
    assert "is smaller than a pixel" in faults[0]


@pytest.mark.parametrize("outlined", [True, False])
def test_persons_with_corners_are_refused(outlined: bool, copy_of: CopyOf) -> None:
    data = copy_of("coco17_keypoints")
    with rewritten(data / PERSONS) as content:
        for entry in content["annotations"]:
            entry["bbox"] = corners(entry["bbox"])
            if not outlined and not entry["iscrowd"]:
                entry["segmentation"] = []
    faults = check("coco17_keypoints", data, decode=False).faults
    reason = "contradicts its outlines" if outlined else "lies mostly outside its image"
    assert any(reason in line and f"look like {XYXY}" in line for line in faults)


def test_an_excerpt_is_announced_with_the_classes_of_its_files(data: Path) -> None:
    (data / SMALL_DATA).unlink()
    sizes = register_subsets(["coco17"], data, tolerated=0)["coco17"][0]
    counts = {"trainval": 48, "test": 24, "train": 44, "val": 4}
    assert (sizes.classes, sizes.counts) == (5, counts)
    assert require("coco17", data, tolerated=0).ok


def test_an_excerpt_may_lack_objects_of_a_class(data: Path) -> None:
    with rewritten(data / INSTANCES) as content:
        entries = content["annotations"]
        content["annotations"] = [entry for entry in entries if entry["category_id"] != 62]
    report = check("coco17", data, decode=False)
    assert report.classes == (4, 5)
    assert "test: class chair is in no image" in report.problems
    mark_small(data, "coco17", Sizes(classes=5, counts={"trainval": 48, "test": 24}))
    assert check("coco17", data, decode=False).ok
    with pytest.raises(DataError, match="does not say how many images to hold out"):
        open_scenes("coco17", data, "val")


def test_the_fingerprint_follows_annotations_and_images(data: Path) -> None:
    file = data / INSTANCES
    observed = [open_any("coco17", data, "test").fingerprint]
    with rewritten(file) as content:
        content["annotations"][1]["bbox"] = [10, 10, 20, 20]
    observed.append(open_any("coco17", data, "test").fingerprint)
    with (data / open_any("coco17", data, "test").name(3)).open("ab") as image:
        image.write(b"\0")
    observed.append(open_any("coco17", data, "test").fingerprint)
    times = file.stat()
    file.write_bytes(file.read_bytes().replace(b"[10, 10, 20, 20]", b"[10, 10, 20, 21]"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # as tar and cp -p do
    assert file.stat().st_size == times.st_size
    observed.append(open_any("coco17", data, "test").fingerprint)
    assert len(set(observed)) == 4


@pytest.mark.data
@pytest.mark.parametrize("key", [*REAL, "voc0712"])
def test_real_annotations_hold_no_false_problem(key: str) -> None:
    report = check(key, real_data(key), decode=True)
    assert report.ok, report.problems[:5]


@pytest.mark.data
@pytest.mark.parametrize(
    ("key", "finds", "usable"),
    [
        ("coco17", "boxes", 117_266),
        ("coco17_keypoints", "boxes", 64_115),
        ("coco17_keypoints", "keypoints", 56_599),
    ],
)
def test_so_many_of_all_training_images_can_be_learned_from(
    key: str, finds: Literal["boxes", "keypoints"], usable: int
) -> None:
    trainval = open_scenes(key, real_data(key), "trainval")
    if len(trainval) < 118_287:
        pytest.skip("an excerpt")
    assert len(usable_for_training(trainval, finds)) == usable


@pytest.mark.detectron2
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.data)])
@pytest.mark.parametrize("key", REAL)
@pytest.mark.parametrize("split", ["trainval", "test"])
def test_detectron2_chooses_the_same(key: str, split: str, real: bool, small_data: Path) -> None:
    data = real_data(key) if real else small_data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of torch.jit at its import
        from detectron2.data.build import (
            filter_images_with_few_keypoints,
            filter_images_with_only_crowd_annotations,
        )
        from detectron2.data.datasets.coco import load_coco_json
    scenes = open_scenes(key, data, split)
    assert scenes.annotations is not None
    records = load_coco_json(str(scenes.annotations), "", f"coco-{key}-{split}-{data.name}")
    usable = usable_for_training(scenes, "keypoints" if "keypoints" in key else "boxes")
    stored = filter_images_with_only_crowd_annotations(records)
    if "keypoints" in key:
        stored = filter_images_with_few_keypoints(stored, 1)
    ids = [scenes.scene(int(i)).image_id for i in usable]
    assert ids == [record["image_id"] for record in stored]


KEYS = ("coco17", "coco17_keypoints", "voc0712")
Finds = Literal["boxes", "masks", "keypoints"]


def usable_by_a_loop(scenes: Scenes, finds: Finds) -> list[int]:
    usable = []
    for i, scene in enumerate(scenes):
        keep = not scene.aside.all() if scenes.aside_are_crowds else len(scene.boxes) > 0
        if finds == "keypoints":
            labeled = scene.keypoints is not None and (scene.keypoints[..., 2] > 0).any()
            keep = keep and bool(labeled)
        if keep:
            usable.append(i)
    return usable


@pytest.mark.parametrize("key", KEYS)
def test_usable_images_are_those_of_a_loop(key: str, small_data: Path) -> None:
    for split in ("train", "test"):
        scenes = open_scenes(key, small_data, split)
        for finds in get_args(Finds):
            assert usable_for_training(scenes, finds).tolist() == usable_by_a_loop(scenes, finds)


@pytest.mark.parametrize("key", KEYS)
def test_objects_per_class_are_those_of_a_loop(key: str, small_data: Path) -> None:
    scenes = open_scenes(key, small_data, "trainval").subset([7, 3, 3, 11, 2])
    counts = np.zeros(len(scenes.class_names), dtype=np.int64)
    for scene in scenes:
        np.add.at(counts, scene.classes[~scene.aside], 1)
    assert counts.any()
    assert scenes.objects_per_class().tolist() == counts.tolist()
