"""A dataset that changes during use leaves no record or cache."""

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import transfer
import transfer.frozen.extraction
from transfer.cells.cell import Cell
from transfer.cells.execution import evaluate, extract_together
from transfer.cells.request import Settings
from transfer.datasets.check import require
from transfer.datasets.images import ChangedDataError
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import Encoder
from transfer.tasks.knn import KNN


def swap_an_image(data: Path, pattern: str = "stanford_cars/cars_train/*.jpg") -> None:
    """Replace one image by another, so that the dataset stays complete."""
    first, *remaining = sorted(data.glob(pattern))
    second = next(file for file in remaining if file.stat().st_size != first.stat().st_size)
    shutil.copy(second, first)


Before = Callable[[Any, str, Callable[[], object]], None]


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> Before:
    """Change the data before a method or function is called."""

    def patch(kind: Any, name: str, change: Callable[[], object]) -> None:
        method = getattr(kind, name)

        def changed(*arguments: object) -> object:
            change()
            return method(*arguments)

        monkeypatch.setattr(kind, name, changed)

    return patch


def rewrite_an_image(data: Path) -> None:
    """Replace one image by another of equal size, and restore it."""
    first = min(data.glob("stanford_cars/cars_train/*.jpg"))
    content = first.read_bytes()
    first.write_bytes(content[:-3] + b"\0\xff\xd9")
    first.write_bytes(content)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        *itertools.product(("prepare", "run", "metrics"), (swap_an_image, rewrite_an_image)),
        ("metrics", lambda data: shutil.rmtree(data / "stanford_cars")),
    ],
)
def test_dataset_changed_during_a_cell_leaves_no_record(
    own_cell: Cell, method: str, change: Callable[[Path], None], before: Before
) -> None:
    before(KNN, method, lambda: change(own_cell.settings.data))
    output = "trainval: image files were" if change == rewrite_an_image else "dataset cars has"
    with pytest.raises(ChangedDataError, match=output):
        evaluate(own_cell)
    assert not own_cell.path.exists()


def test_a_joint_extraction_during_which_an_image_was_replaced_leaves_no_features(
    own_cell: Cell, before: Before, capsys: pytest.CaptureFixture[str]
) -> None:
    before(transfer.frozen.extraction, "forward", lambda: rewrite_an_image(own_cell.settings.data))
    extract_together([own_cell])
    assert capsys.readouterr().err.count("image files were written in the meantime") == 1
    assert len(list(own_cell.folders.cache.rglob("*.npy"))) == 1  # of test, which has not changed


SETS = {
    "coco_det": ("coco17", "coco/train2017/*.jpg"),
    "coco_keypoint": ("coco17_keypoints", "coco/val2017/*.jpg"),
    "voc0712_det_c4": ("voc0712", "VOCdevkit/VOC2012/JPEGImages/*.jpg"),
    "voc12_seg_fcn": ("voc12_seg", "VOCdevkit/VOC2012/SegmentationClass/*.png"),
    "in1k_semi_1pct@co2": ("in1k_1pct", "imagenet/val/*/*.JPEG"),
    "inat1k_knn": ("inat1k", "inat2019/train_val2019/*/*/*.jpg"),
}


@pytest.mark.slow
@pytest.mark.parametrize("key", SETS)
def test_sets_of_every_kind_are_compared_where_they_are_opened(
    key: str, small_backbone: Encoder, settings: Settings, tmp_path: Path, before: Before
) -> None:
    name, pattern = SETS[key]
    generate(tmp_path / "data", keys=(name,))
    settings = replace(settings, data=tmp_path / "data")
    cell = Cell.with_backbone(task=key, backbone=small_backbone, seed=0, settings=settings)
    before(type(cell.task), "prepare", lambda: swap_an_image(settings.data, pattern))
    with pytest.raises(ChangedDataError, match="has changed while it was being used"):
        evaluate(cell)


@pytest.mark.parametrize("change", [rewrite_an_image, swap_an_image])
def test_data_changed_between_cells_fails_one_and_is_then_checked_again(
    own_cell: Cell, change: Callable[[Path], None]
) -> None:
    first = evaluate(own_cell)
    change(own_cell.settings.data)
    with pytest.raises(ChangedDataError):
        evaluate(own_cell.with_request(seed=1))
    now = require("cars", own_cell.settings.data, tolerated=0).fingerprint
    assert evaluate(own_cell).data["cars"]["fingerprint"] == now  # though it was finished
    assert (first.data["cars"]["fingerprint"] == now) == (change == rewrite_an_image)


@pytest.mark.parametrize("change", [rewrite_an_image, swap_an_image])
def test_data_changed_between_calls_of_the_api_are_checked_again(
    own_cell: Cell, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, runs = own_cell.settings.data, own_cell.settings.runs
    knn = partial(transfer.evaluate, own_cell.backbone, "cars_knn", schedule="smoke", runs=runs)
    knn(data=data)
    change(data)
    now = require("cars", data, tolerated=0).fingerprint
    monkeypatch.chdir(data.parent)
    for _ in range(2):
        assert knn(data=data.name).record.data["cars"]["fingerprint"] == now
