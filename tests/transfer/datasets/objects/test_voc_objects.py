"""VOC's objects as the annotations hold them, and every broken one named."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from transfer.datasets.catalog import open_scenes, open_split
from transfer.datasets.check import check, require
from transfer.datasets.expected import DataError, small_sizes
from transfer.datasets.scenes import usable_for_training


def test_trainval_is_of_both_years_and_test_of_2007(small_data: Path) -> None:
    trainval = open_scenes("voc0712", small_data, "trainval")
    years = [scene.name.split("/")[1] for scene in trainval]
    assert years == ["VOC2007"] * 200 + ["VOC2012"] * 360
    test = open_scenes("voc0712", small_data, "test")
    of_labels = open_split("voc07", small_data, "test")
    assert [test.name(i) for i in range(160)] == [of_labels.name(i) for i in range(160)]


def test_a_box_around_the_image_goes_from_zero_to_its_size(small_data: Path) -> None:
    whole = [
        (scene.boxes[0].tolist(), scene.width, scene.height)
        for scene in open_scenes("voc0712", small_data, "test")
        if len(scene.boxes) == 1
    ]
    assert whole
    assert all(box == [0, 0, width, height] for box, width, height in whole)


def test_difficult_objects_are_learned_but_stand_aside(small_data: Path) -> None:
    scenes = open_scenes("voc0712", small_data, "trainval")
    marks = [
        thing.findtext("difficult") == "1"
        for scene in scenes
        for thing in ElementTree.parse(_xml(small_data, scene.name)).iter("object")
    ]
    assert np.concatenate([scene.aside for scene in scenes]).tolist() == marks
    assert sum(marks) > 10


def test_only_difficult_objects_do_not_drop_an_image(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("voc0712")
    first = open_scenes("voc0712", data, "trainval").name(0)
    _replace(_xml(data, first), "<difficult>0", "<difficult>1")
    scenes = open_scenes("voc0712", data, "trainval")
    assert scenes.scene(0).aside.all()
    assert usable_for_training(scenes, "boxes").tolist() == list(range(560))


def _xml(data: Path, image: str) -> Path:
    return data / Path(image.replace("JPEGImages", "Annotations")).with_suffix(".xml")


def _replace(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<name>", "<name>un", "object 1: class 'un"),
        ("<xmin>1<", "<xmin>7777<", "object 1: box .* has a negative size"),
        ("<xmax>96<", "<xmax>0<", "object 1: box .* lies outside"),
        ("<xmin>1<", "<xmin>x<", "object 1: box .* is not four finite numbers"),
    ],
)
def test_a_broken_object_is_named_and_left_out(
    old: str, new: str, message: str, copy_of: Callable[[str], Path]
) -> None:
    data = copy_of("voc0712")
    scenes = open_scenes("voc0712", data, "test")
    alone = next(i for i, scene in enumerate(scenes) if len(scene.boxes) == 1)
    file = _xml(data, scenes.name(alone))
    _replace(file, old, new)
    report = check("voc0712", data, decode=False)
    assert report.problems == report.faults
    with pytest.raises(DataError, match=rf"1 annotations broken(.|\n)*{file.name}: {message}"):
        require("voc0712", data, tolerated=0)
    assert len(open_scenes("voc0712", data, "test").scene(alone).boxes) == 0


def test_a_missing_or_cut_annotation_file_is_named(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("voc0712")
    names = [_xml(data, open_scenes("voc0712", data, "test").name(i)) for i in (3, 8)]
    names[0].unlink()
    names[1].write_text(names[1].read_text()[:150])
    report = check("voc0712", data, decode=False)
    assert report.faults[0] == f"{names[0].relative_to(data)}: missing"
    assert report.faults[1].startswith(f"{names[1].relative_to(data)}: no image size can be read")
    assert report.counts["test"] == (158, 160)


def test_a_box_that_passes_the_border_gets_a_note_but_is_no_fault(
    copy_of: Callable[[str], Path],
) -> None:
    data = copy_of("voc0712")
    scenes = open_scenes("voc0712", data, "test")
    whole = next(scene.name for scene in scenes if len(scene.boxes) == 1)
    _replace(_xml(data, whole), "<ymax>64<", "<ymax>164<")
    (note,) = require("voc0712", data, tolerated=0).notes
    assert "object 1: box [0.0, 0.0, 96.0, 164.0] passes the border" in note


@pytest.mark.parametrize("decode", [False, True])
def test_an_image_of_another_size_is_named(decode: bool, copy_of: Callable[[str], Path]) -> None:
    data = copy_of("voc0712")
    name = open_scenes("voc0712", data, "test").name(3)
    _replace(_xml(data, name), "<width>96<", "<width>97<")
    (line,) = check("voc0712", data, decode=decode).problems
    assert line == f"{name}: (96, 64) px, annotated as (97, 64)"


@pytest.mark.data
def test_real_annotations_hold_no_false_problem() -> None:
    report = check("voc0712", _real(), decode=True)
    assert report.ok, report.problems[:5]


def _real() -> Path:
    data = Path(os.environ["DATASETS"])
    drawn = getattr(small_sizes(data).get("voc0712"), "drawn", False)
    if drawn or not all((data / "VOCdevkit" / f"VOC{year}").is_dir() for year in (2007, 2012)):
        pytest.skip(f"{data} holds no published VOC of both years")
    return data


@pytest.mark.detectron2
def test_detectron2_reads_the_same(small_data: Path) -> None:
    compare_with_detectron2(small_data)


@pytest.mark.detectron2
@pytest.mark.data
def test_detectron2_reads_real_annotations_alike() -> None:
    compare_with_detectron2(_real())


def compare_with_detectron2(data: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of torch.jit at its import
        from detectron2.data.datasets.pascal_voc import CLASS_NAMES, load_voc_instances
    folder = data / "VOCdevkit"
    records = [
        record
        for year in ("VOC2007", "VOC2012")
        for record in load_voc_instances(str(folder / year), "trainval", CLASS_NAMES)
    ]
    scenes = open_scenes("voc0712", data, "trainval")
    assert scenes.class_names == tuple(CLASS_NAMES)
    for scene, record in zip(scenes, records, strict=True):
        assert scene.image_id == record["image_id"]
        assert (scene.width, scene.height) == (record["width"], record["height"])
        assert scene.boxes.tolist() == [thing["bbox"] for thing in record["annotations"]]
        assert scene.classes.tolist() == [thing["category_id"] for thing in record["annotations"]]
