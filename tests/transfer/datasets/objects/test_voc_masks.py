"""train_aug from either usual source: SegmentationClassAug, or SBD's files converted."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from transfer.__main__ import main
from transfer.datasets.catalog import open_segmented
from transfer.datasets.check import check
from transfer.datasets.expected import DataError
from transfer.datasets.objects.sbd import convert_sbd, read_sbd_mask
from transfer.datasets.segmented import IGNORED, Segmented


@pytest.fixture
def data(copy_of: Callable[[str], Path]) -> Path:
    return copy_of("voc12")


def voc(data: Path) -> Path:
    return data / "VOCdevkit" / "VOC2012"


def ids(split: Segmented) -> list[str]:
    return [Path(split.name(i)).stem for i in range(len(split))]


def into_sbd(data: Path) -> None:
    """The added masks as SBD publishes them, and one of VOC's train and one of its val beside."""
    folder = data / "benchmark_RELEASE" / "dataset" / "cls"
    folder.mkdir(parents=True)
    trainval, test = (open_segmented("voc12_seg", data, split) for split in ("trainval", "test"))
    added = [i for i in range(len(trainval)) if "Aug" in trainval.masks.name(i)]
    own = next(i for i in range(len(trainval)) if i not in added)
    for split, i in [*((trainval, i) for i in (*added, own)), (test, 0)]:
        content = np.zeros((1, 1), dtype=[("Segmentation", object)])
        mask = split.mask(i)
        content["Segmentation"][0, 0] = np.where(mask == IGNORED, 0, mask)
        scipy.io.savemat(folder / f"{Path(split.name(i)).stem}.mat", {"GTcls": content})
    shutil.rmtree(voc(data) / "SegmentationClassAug")


def test_train_aug_is_vocs_train_and_what_is_added_without_val(data: Path) -> None:
    listed = {
        name: (voc(data) / f"ImageSets/Segmentation/{name}.txt").read_text().split()
        for name in ("train", "val")
    }
    aug = voc(data) / "SegmentationClassAug"
    # the download of that name also holds the masks of VOC's own train and val
    for name in (listed["train"][0], listed["val"][0]):
        shutil.copy(voc(data) / "SegmentationClass" / f"{name}.png", aug)
    trainval = open_segmented("voc12_seg", data, "trainval")
    added = {file.stem for file in aug.iterdir()}
    assert ids(trainval) == sorted({*listed["train"], *added} - set(listed["val"]))
    assert ids(open_segmented("voc12_seg", data, "test")) == listed["val"]
    assert trainval.masks.name(0).split("/")[-2] == "SegmentationClass"
    assert trainval.class_names[:2] == ("background", "aeroplane")


def test_a_list_of_paths_is_a_list_of_ids(data: Path) -> None:
    before = ids(open_segmented("voc12_seg", data, "trainval"))
    pairs = [f"/JPEGImages/{i}.jpg /SegmentationClassAug/{i}.png\n" for i in before]
    (voc(data) / "ImageSets" / "Segmentation" / "train_aug.txt").write_text("".join(pairs))
    trainval = open_segmented("voc12_seg", data, "trainval")
    assert ids(trainval) == before
    assert "listed in train_aug.txt" in trainval.notes[0]


def test_an_image_in_train_and_val_is_named(data: Path) -> None:
    lists = voc(data) / "ImageSets" / "Segmentation"
    both = (lists / "val.txt").read_text().split()[0]
    with (lists / "train.txt").open("a") as listing:
        listing.write(f"{both}\n")
    with pytest.raises(DataError, match=rf"1 images are in both train\.txt and val\.txt, .*{both}"):
        open_segmented("voc12_seg", data, "trainval")


def test_check_data_names_the_source_of_the_masks(data: Path) -> None:
    assert "all files but VOC's own" in check("voc12_seg", data, decode=False).notes[0]
    into_sbd(data)
    report = check("voc12_seg", data, decode=False)
    assert not report.ok
    assert "not converted yet; once: python -m transfer convert-sbd" in report.notes[0]
    shutil.rmtree(data / "benchmark_RELEASE")
    report = check("voc12_seg", data, decode=False)
    assert "neither SegmentationClassAug nor SBD" in report.notes[0]
    assert report.counts["trainval"] == (60, 100)


def test_sbd_converted_is_the_same_set(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = open_segmented("voc12_seg", data, "trainval")
    into_sbd(data)
    assert main(["convert-sbd", "--data", str(data)]) == 0
    assert "40 masks of SBD" in capsys.readouterr().out
    assert check("voc12_seg", data, decode=False).ok
    after = open_segmented("voc12_seg", data, "trainval")
    assert ids(after) == ids(before)
    assert "listed in trainaug.txt" in after.notes[0]
    for i in range(len(before)):
        mask = before.mask(i)
        if "Aug" in before.masks.name(i):
            mask[mask == IGNORED] = 0
        assert np.array_equal(after.mask(i), mask)


def test_a_file_that_is_not_sbds_is_named(data: Path) -> None:
    into_sbd(data)
    (data / "benchmark_RELEASE/dataset/cls/2008_000099.mat").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"2008_000099\.mat: holds no GTcls"):
        convert_sbd(data)
    assert not (voc(data) / "ImageSets/Segmentation/trainaug.txt").exists()


@pytest.mark.parametrize("classes", [[[0, 300]], [[[0, 1]]], [[0.5]]])
def test_classes_that_are_no_ids_in_two_dimensions_are_refused(
    data: Path, classes: list[list[float]]
) -> None:
    into_sbd(data)
    content = np.zeros((1, 1), dtype=[("Segmentation", object)])
    content["Segmentation"][0, 0] = np.array(classes)
    file = data / "benchmark_RELEASE/dataset/cls/2008_000099.mat"
    scipy.io.savemat(file, {"GTcls": content})
    with pytest.raises(DataError, match="with ids from 0 to 255"):
        read_sbd_mask(file)


def test_an_interrupted_conversion_is_named(data: Path) -> None:
    into_sbd(data)
    convert_sbd(data)
    (voc(data) / "ImageSets" / "Segmentation" / "trainaug.txt").unlink()
    assert "run it again" in check("voc12_seg", data, decode=False).notes[0]
