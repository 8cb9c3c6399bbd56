"""VOC's objects and masks, SBD's masks, and errors of broken files."""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.io
from PIL import Image

from tests.transfer.datasets.conftest import CopyOf, real_data
from transfer.__main__ import main
from transfer.datasets.catalog import open_scenes, open_segmented, open_split
from transfer.datasets.check import check, require
from transfer.datasets.expected import DataError
from transfer.datasets.objects.voc import convert_sbd, read_sbd_mask
from transfer.datasets.scenes import usable_for_training
from transfer.datasets.segmented import IGNORED, Segmented, write_mask
from transfer.datasets.splits import without


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


def test_difficult_objects_are_ignored(copy_of: CopyOf) -> None:
    data = copy_of("voc0712")
    first = open_scenes("voc0712", data, "trainval").name(0)
    _replace(_xml(data, first), "<difficult>0", "<difficult>1")
    scenes = open_scenes("voc0712", data, "trainval")
    marks = [
        thing.findtext("difficult") == "1"
        for scene in scenes
        for thing in ElementTree.parse(_xml(data, scene.name)).iter("object")
    ]
    assert np.concatenate([scene.aside for scene in scenes]).tolist() == marks
    assert scenes.scene(0).aside.all()
    assert usable_for_training(scenes, "boxes").tolist() == list(range(560))


def _xml(data: Path, image: str) -> Path:
    return data / Path(image.replace("JPEGImages", "Annotations")).with_suffix(".xml")


def _replace(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_everything_broken_is_named_and_left_out(copy_of: CopyOf) -> None:
    data = copy_of("voc0712")
    scenes = open_scenes("voc0712", data, "test")
    single = [i for i, scene in enumerate(scenes) if len(scene.boxes) == 1][:4]
    files = [_xml(data, scenes.name(i)) for i in single]
    damages = {
        ("<name>", "<name>un"): "object 1: class 'un",
        ("<xmin>1<", "<xmin>7777<"): "has a negative size",
        ("<xmax>96<", "<xmax>0<"): "lies outside",
        ("<xmin>1<", "<xmin>x<"): "is not four finite numbers",
    }
    for file, (old, new) in zip(files, damages, strict=True):
        _replace(file, old, new)
    report = check("voc0712", data, decode=False)
    assert report.problems == report.faults
    for line, file, reason in zip(report.faults, files, damages.values(), strict=True):
        assert line.startswith(f"{file.relative_to(data)}: object 1: ")
        assert reason in line
    with pytest.raises(DataError, match="4 annotations broken"):
        require("voc0712", data, tolerated=3)
    assert all(len(open_scenes("voc0712", data, "test").scene(i).boxes) == 0 for i in single)
    files[0].unlink()
    files[1].write_text(files[1].read_text()[:150])
    report = check("voc0712", data, decode=False)
    assert f"{files[0].relative_to(data)}: missing" in report.problems
    assert any(
        line.startswith(f"{files[1].relative_to(data)}: no image size can be read")
        for line in report.problems
    )
    assert report.counts["test"] == (158, 160)
    # each image counts once, although it is missing in the counts, too
    assert (report.num_bad, report.num_skipped, len(report.faults)) == (
        4,
        {"trainval": 0, "test": 2},
        2,
    )
    assert require("voc0712", data, tolerated=4) == report


def rewrite_boxes(data: Path, change: Callable[[list[float]], list[float]]) -> None:
    """Change the box coordinates of the VOC 2007 test images."""
    for file in sorted((data / "VOCdevkit" / "VOC2007" / "Annotations").glob("*.xml")):
        tree = ElementTree.parse(file)
        for box in tree.iter("bndbox"):
            for corner, value in zip(box, change([float(c.text or "") for c in box]), strict=True):
                corner.text = f"{value:g}"
        tree.write(file)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (
            lambda b: [b[0] / 96, b[1] / 64, b[2] / 96, b[3] / 64],
            "look like fractions of the image",
        ),
        (lambda b: [b[1], b[0], b[3], b[2]], "look like top, left, bottom, right"),
        (lambda b: [b[2], b[3], b[0], b[1]], "has a negative size"),
        (lambda b: [b[0], b[1], b[2] - b[0], b[3] - b[1]], "has a negative size"),
    ],
)
def test_boxes_of_another_layout_are_refused(
    change: Callable[[list[float]], list[float]], fact: str, copy_of: CopyOf
) -> None:
    data = copy_of("voc0712")
    rewrite_boxes(data, change)
    with pytest.raises(DataError, match=fact):
        require("voc0712", data, tolerated=0)


@pytest.mark.detectron2
@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.data)])
def test_detectron2_reads_the_same(real: bool, small_data: Path) -> None:
    data = real_data("voc0712") if real else small_data
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


@pytest.fixture
def data(copy_of: CopyOf) -> Path:
    return copy_of("voc12")


def voc(data: Path) -> Path:
    return data / "VOCdevkit" / "VOC2012"


def ids(split: Segmented) -> list[str]:
    return [Path(split.name(i)).stem for i in range(len(split))]


def into_sbd(data: Path) -> None:
    """Write added masks as SBD publishes them, and two of VOC's."""
    folder = data / "benchmark_RELEASE" / "dataset" / "cls"
    folder.mkdir(parents=True)
    trainval, test = (open_segmented("voc12_seg", data, split) for split in ("trainval", "test"))
    added = [i for i in range(len(trainval)) if "Aug" in trainval.masks.name(i)]
    ours = next(i for i in range(len(trainval)) if i not in added)
    for split, i in [*((trainval, i) for i in (*added, ours)), (test, 0)]:
        mask = split.mask(i)
        write_mat(folder / f"{Path(split.name(i)).stem}.mat", np.where(mask == IGNORED, 0, mask))
    shutil.rmtree(voc(data) / "SegmentationClassAug")


def write_mat(file: Path, classes: np.ndarray) -> None:
    content = np.zeros((1, 1), dtype=[("Segmentation", object)])
    content["Segmentation"][0, 0] = classes
    scipy.io.savemat(file, {"GTcls": content})


def test_train_aug_is_vocs_train_and_what_is_added_without_val(data: Path) -> None:
    lists, aug = voc(data) / "ImageSets" / "Segmentation", voc(data) / "SegmentationClassAug"
    train, val = ((lists / f"{name}.txt").read_text().split() for name in ("train", "val"))
    # the download of that name also holds the masks of VOC's own train and val
    for name in (train[0], val[0]):
        shutil.copy(voc(data) / "SegmentationClass" / f"{name}.png", aug)
    (voc(data) / "SegmentationClassAug" / "._2008_000001.png").touch()  # macOS
    trainval = open_segmented("voc12_seg", data, "trainval")
    assert ids(trainval) == sorted({*train, *(file.stem for file in aug.glob("2*.png"))} - {*val})
    assert ids(open_segmented("voc12_seg", data, "test")) == val
    assert trainval.masks.name(0).split("/")[-2] == "SegmentationClass"
    assert trainval.class_names[:2] == ("background", "aeroplane")
    (lists / "train.txt").write_text("".join(f"{i}\n" for i in (*train, val[0])))
    problems = check("voc12_seg", data, decode=False).problems
    assert any("1 image is also in trainval" in line and val[0] in line for line in problems)


def test_check_data_names_the_source_of_the_masks(data: Path) -> None:
    assert not check("voc12_seg", data, decode=False).notes
    into_sbd(data)
    (data / "benchmark_RELEASE/dataset/cls/._2008_000002.mat").touch()
    report = check("voc12_seg", data, decode=False)
    assert not report.ok
    assert "is missing; python -m transfer get-data voc12_seg" in report.notes[0]
    convert_sbd(data)
    shutil.rmtree(data / "benchmark_RELEASE")
    shutil.rmtree(voc(data) / "SegmentationClassAug")
    report = check("voc12_seg", data, decode=False)
    assert "is missing; python -m transfer get-data voc12_seg" in report.notes[0]
    assert report.counts["trainval"] == (60, 100)


def test_sbd_converted_is_the_same_set(data: Path) -> None:
    previous = open_segmented("voc12_seg", data, "trainval")
    masks = [previous.mask(i) for i in range(len(previous))]
    into_sbd(data)
    assert main(["get-data", "sbd", "--data", str(data)]) == 0
    assert check("voc12_seg", data, decode=False).ok
    after = open_segmented("voc12_seg", data, "trainval")
    assert ids(after) == ids(previous)
    for i, mask in enumerate(masks):
        if "Aug" in previous.masks.name(i):
            mask[mask == IGNORED] = 0
        assert np.array_equal(after.mask(i), mask)


def test_a_file_that_is_not_sbds_is_named(data: Path) -> None:
    into_sbd(data)
    file = data / "benchmark_RELEASE/dataset/cls/2008_000099.mat"
    file.write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"2008_000099\.mat: it cannot be read"):
        convert_sbd(data)
    for classes in ([[0, 300]], [[[0, 1]]], [[0.5]]):
        write_mat(file, np.array(classes))
        with pytest.raises(DataError, match="in uint8"):
            read_sbd_mask(file)


def mask_file(split: Segmented, i: int) -> Path:
    return split.masks.folder / split.masks.name(i)


def test_everything_wrong_with_masks_is_named(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    mask = split.mask(3)
    mask[0, :8] = [21, 30, 31, 32, 33, 34, 254, IGNORED]
    write_mask(mask_file(split, 3), mask)
    write_mask(mask_file(split, 2), split.mask(2)[:60])
    Image.new("LA", (96, 64)).save(mask_file(split, 0))
    mask_file(split, 1).write_bytes(mask_file(split, 1).read_bytes()[:60])
    result = check("voc12_seg", data, decode=False).problems
    reasons = (
        "mode LA, but class ids are expected",
        "cannot be decoded",
        "96 x 60 px, but its image has 96 x 64",
        "unknown ids 21, 30, 31, 32, 33, 34, 254; expected 0 to 20, and 255 for pixels that",
    )
    for i, (line, reason) in enumerate(zip(result, reasons, strict=True)):
        assert line.startswith(f"{split.name(i)}: its mask {split.masks.name(i)}: {reason}")


def test_a_run_refuses_broken_masks_or_leaves_them_out(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "trainval")
    for i in (4, 7):
        mask_file(split, i).unlink()
    with pytest.raises(DataError, match="2 images are missing") as error:
        require("voc12_seg", data, tolerated=1)
    assert split.masks.name(4) in str(error.value)
    report = require("voc12_seg", data, tolerated=2)
    rest = without(split, report.unreadable)
    assert len(rest) == len(split) - 2
    assert not any(rest.mask_check[0])


def test_changed_mask_changes_the_fingerprint(data: Path) -> None:
    split = open_segmented("voc12_seg", data, "test")
    states, fingerprint = [files.state() for files in split.files], split.fingerprint
    file, mask = mask_file(split, 0), split.mask(0)
    times, content = file.stat(), file.read_bytes()
    file.chmod(0o600)
    assert [files.state() for files in split.files] == states
    file.write_bytes(content)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    now = [files.state() for files in split.files]
    assert [a == b for a, b in zip(now, states, strict=True)] == [True, False]
    assert open_segmented("voc12_seg", data, "test").fingerprint == fingerprint
    mask[0, 0] = 5
    write_mask(file, mask)
    assert open_segmented("voc12_seg", data, "test").fingerprint != fingerprint
