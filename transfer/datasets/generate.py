"""Small versions of every layout, with a signal that can be learned, for the demo and the tests.

The sets share the kinds of `patterns.py`, each takes its own; `pretrain/` holds images of all kinds
without labels, drawn apart from the sets. What is written is entered in `small-data.json`.
"""

import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from transfer.datasets import layouts
from transfer.datasets.catalog import DATASETS, dataset_info
from transfer.datasets.coco_layout import CATEGORIES, write_coco
from transfer.datasets.expected import Sizes, mark_small, small_sizes
from transfer.datasets.imagenet import imagenet100_wnids
from transfer.datasets.imagenet_c import FOLDER as IMAGENET_C_FOLDER
from transfer.datasets.imagenet_c import KINDS as CORRUPTIONS
from transfer.datasets.imagenet_c import MAIN_KINDS, SEVERITIES
from transfer.datasets.images import DataError
from transfer.datasets.layouts import Draw, DrawPixels, Plan
from transfer.datasets.made_corruptions import FOLDER as MADE_FOLDER
from transfer.datasets.made_corruptions import MANIFEST, Made, write_manifest
from transfer.datasets.objectnet import BORDER_PX, WNIDS
from transfer.datasets.patterns import KINDS, Pixels, jpeg, paint, png
from transfer.datasets.robustness_layout import write_imagenet_c, write_objectnet
from transfer.datasets.voc import CLASSES as VOC_CLASSES
from transfer.datasets.voc_layout import ADDED_MASKS, MASKED, write_voc
from transfer.whole_file import explain_write_errors

POOL_FOLDER = "pretrain"
POOL_IMAGES = 2_000
CIFAR_PX = 32
FILE_PX = (64, 80)
"""Shortest and longest side of the other images."""


@dataclass(frozen=True, kw_only=True)
class SmallSet:
    """How one set is copied in small."""

    plan: Plan
    first_kind: int
    """The classes are every fifth kind from here on: a set mixes easy and hard ones."""
    write: Callable[[Path, Plan, Draw], None]


def _plan(classes: int, *, train: int = 24, val: int = 8, test: int = 20) -> Plan:
    return Plan(classes=classes, train=train, val=val, test=test)


SMALL_SETS: dict[str, SmallSet] = {
    "aircraft": SmallSet(
        plan=_plan(5, train=16, val=16), first_kind=0, write=layouts.write_aircraft
    ),
    "birdsnap": SmallSet(plan=_plan(6), first_kind=1, write=layouts.write_birdsnap),
    "caltech101": SmallSet(plan=_plan(5), first_kind=2, write=layouts.write_caltech101),
    "cars": SmallSet(plan=_plan(6), first_kind=3, write=layouts.write_cars),
    "dtd": SmallSet(plan=_plan(5, train=16, val=16), first_kind=4, write=layouts.write_dtd),
    "flowers": SmallSet(plan=_plan(6, train=16, val=16), first_kind=5, write=layouts.write_flowers),
    "food": SmallSet(plan=_plan(5), first_kind=6, write=layouts.write_food),
    "pets": SmallSet(plan=_plan(6), first_kind=7, write=layouts.write_pets),
    "places365": SmallSet(plan=_plan(5), first_kind=8, write=layouts.write_places365),
    "sun397": SmallSet(plan=_plan(5), first_kind=9, write=layouts.write_sun397),
    "inat1k": SmallSet(plan=_plan(6), first_kind=15, write=layouts.write_inat1k),
    "cub200": SmallSet(plan=_plan(6), first_kind=16, write=layouts.write_cub200),
}
"""The sets of JPEG files with one label per image and a folder of their own."""
CIFAR_SETS: dict[str, tuple[Plan, int, Callable[[Path, Plan, DrawPixels], None]]] = {
    "cifar10": (_plan(6), 10, layouts.write_cifar10),
    "cifar100": (_plan(8), 11, layouts.write_cifar100),
}
IMAGENET_PLAN = _plan(10)
IN100_PLAN = _plan(8)
LISTED = {"in1k_1pct": ("1percent.txt", 6), "in1k_10pct": ("10percent.txt", 12)}
"""Lists of labelled images of the small ImageNet-1k, and how many of each class they name."""
LISTED_VAL = 2
"""Of each class."""
IMAGENET_FIRST_KIND = 12
CORRUPTED = {
    "imagenet_c100": (IMAGENET_C_FOLDER, CORRUPTIONS),
    "imagenet_c100_made": (MADE_FOLDER, MAIN_KINDS),
}
"""Folder and kinds of corruption; one image of each class."""
OBJECTNET_IMAGES = 12
"""Per class."""
VOC_IMAGE_SETS: dict[str, dict[str, int]] = {
    "2007": {"train": 100, "val": 100, "test": 160},
    "2012": {"train": 200, "val": 160},
}
VOC12_VAL = 40
VOC0712_VAL = 60
VOC12_SEG_VAL = 30
COCO_IMAGES = {"train2017": 48, "val2017": 24}
COCO_VAL = 12
WRITTEN_AS = {
    "in100": ("in1k",),
    "in1k_1pct": ("in1k", "in1k_1pct"),
    "in1k_10pct": ("in1k", "in1k_1pct"),
    "voc0712": ("voc07", "voc12"),
    "voc12_seg": ("voc12",),
    "coco17_keypoints": ("coco17",),
}
"""Sets that lie in the folders of others."""


def generate(data: Path, *, keys: Sequence[str] | None = None, seed: int = 0) -> None:
    """Write small copies of these sets below `data`; `pretrain` among the keys is the pool.

    Without keys: everything. A copy that `generate` wrote before is replaced; a folder of any other
    origin is an error.
    """
    asked = [*DATASETS, POOL_FOLDER] if keys is None else list(keys)
    data.mkdir(parents=True, exist_ok=True)
    wanted = [written for key in asked for written in WRITTEN_AS.get(key, (key,))]
    for key in dict.fromkeys(wanted):
        rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
        with explain_write_errors(data / key):
            if key == POOL_FOLDER:
                _write_pool(data / POOL_FOLDER, rng)
            else:
                _write_set(data, key, rng)
    if all(key in small_sizes(data) and small_sizes(data)[key].drawn for key in ("voc07", "voc12")):
        mark_small(data, "voc0712", _voc0712_sizes())


def generate_cifar_folder(data: Path, key: str, *, seed: int = 0) -> None:
    """The small CIFAR-10 or CIFAR-100 as image folders instead of pickles."""
    plan, first_kind, _ = CIFAR_SETS[key]
    kinds = _kinds(plan.classes, first_kind)
    rng = np.random.default_rng([seed, zlib.crc32(key.encode())])
    draw = partial(_draw_jpeg, kinds, (CIFAR_PX, CIFAR_PX), rng)
    _refuse_foreign(data, key, key)
    shutil.rmtree(data / key, ignore_errors=True)
    layouts.write_cifar_folder(data, key, plan, draw)
    mark_small(data, key, plan.sizes)


def _write_set(data: Path, key: str, rng: np.random.Generator) -> None:
    """Write beside the data first, so that an interruption leaves no half set in its place."""
    folder = dataset_info(key).folder
    _refuse_foreign(data, key, folder)
    with tempfile.TemporaryDirectory(dir=data, prefix=".generating-") as staging:
        for marked, sizes in _write_into(Path(staging), key, rng).items():
            mark_small(data, marked, sizes)
        shutil.rmtree(data / folder, ignore_errors=True)
        (data / folder).parent.mkdir(parents=True, exist_ok=True)
        (Path(staging) / folder).rename(data / folder)


def _write_into(root: Path, key: str, rng: np.random.Generator) -> dict[str, Sizes]:
    """Write one layout; the sizes of the sets that read it."""
    if key in SMALL_SETS:
        small = SMALL_SETS[key]
        kinds = _kinds(small.plan.classes, small.first_kind)
        small.write(root, small.plan, partial(_draw_jpeg, kinds, FILE_PX, rng))
        return {key: small.plan.sizes}
    if key in CIFAR_SETS:
        plan, first_kind, write = CIFAR_SETS[key]
        write(root, plan, partial(_draw_cifar, _kinds(plan.classes, first_kind), rng))
        return {key: plan.sizes}
    if key == "in1k":
        kinds = _kinds(IMAGENET_PLAN.classes, IMAGENET_FIRST_KIND)
        layouts.write_imagenet(root, IMAGENET_PLAN, partial(_draw_jpeg, kinds, FILE_PX, rng))
        return {"in1k": IMAGENET_PLAN.sizes, "in100": IN100_PLAN.sizes}
    if key == "in1k_1pct":
        layouts.write_lists(root, IMAGENET_PLAN, dict(LISTED.values()))
        return {listed: _listed_sizes(count) for listed, (_, count) in LISTED.items()}
    if key in CORRUPTED:
        folder, corruptions = CORRUPTED[key]
        wnids = [w for w in layouts.imagenet_wnids(IMAGENET_PLAN) if w in imagenet100_wnids()]
        write_imagenet_c(root / folder, corruptions, wnids, partial(_draw_corrupted, rng))
        if folder == MADE_FOLDER:
            _say_made_up(root / folder, corruptions)
        return {key: _test_only(len(wnids), len(corruptions) * len(SEVERITIES))}
    if key == "objectnet13":
        wnids = [w for w in layouts.imagenet_wnids(IMAGENET_PLAN) if w in WNIDS.values()]
        write_objectnet(root, wnids, OBJECTNET_IMAGES, partial(_draw_bordered, rng))
        return {key: _test_only(len(wnids), OBJECTNET_IMAGES)}
    if key == "coco17":
        write_coco(root, COCO_IMAGES, _kinds(len(CATEGORIES), 14), rng)
        return {"coco17": _coco_sizes(len(CATEGORIES)), "coco17_keypoints": _coco_sizes(1)}
    year = {"voc07": "2007", "voc12": "2012"}[key]
    counts = VOC_IMAGE_SETS[year]
    write_voc(root, year, counts, _kinds(len(VOC_CLASSES), 13), rng)
    masked = {"voc12_seg": _voc12_seg_sizes()} if year == "2012" else {}
    return {key: _voc_sizes(counts), **masked}


def _say_made_up(folder: Path, kinds: Sequence[str]) -> None:
    """The manifest that `corrupt.py` would write, in the name of this generator."""
    first = folder / kinds[0] / str(SEVERITIES[0])
    files = sorted(file.relative_to(first).as_posix() for file in first.rglob("*.JPEG"))
    made = Made(
        package="generate-data", version="1", kinds=tuple(kinds), source="", images=tuple(files)
    )
    write_manifest(folder / MANIFEST, made)


def _listed_sizes(per_class: int) -> Sizes:
    """Of one list; all are tested on the same images."""
    plan = replace(IMAGENET_PLAN, train=per_class - LISTED_VAL, val=LISTED_VAL)
    return plan.sizes


def _voc_sizes(counts: dict[str, int]) -> Sizes:
    """VOC 2012 tests on its val images and draws val from its train images."""
    classes = len(VOC_CLASSES)
    if "test" in counts:
        return _held_out(counts["train"] + counts["val"], counts["val"], counts["test"], classes)
    return _held_out(counts["train"], VOC12_VAL, counts["val"], classes)


def _voc0712_sizes() -> Sizes:
    """Training images of both years, test images of 2007."""
    trainval = [counts["train"] + counts["val"] for counts in VOC_IMAGE_SETS.values()]
    return _held_out(sum(trainval), VOC0712_VAL, VOC_IMAGE_SETS["2007"]["test"], len(VOC_CLASSES))


def _voc12_seg_sizes() -> Sizes:
    """Background is a class, too."""
    trainval = MASKED["train"] + ADDED_MASKS
    return _held_out(trainval, VOC12_SEG_VAL, MASKED["val"], 1 + len(VOC_CLASSES))


def _coco_sizes(classes: int) -> Sizes:
    return _held_out(COCO_IMAGES["train2017"], COCO_VAL, COCO_IMAGES["val2017"], classes)


def _held_out(trainval: int, val: int, test: int, classes: int) -> Sizes:
    counts = {"train": trainval - val, "val": val, "trainval": trainval, "test": test}
    return Sizes(classes=classes, counts=counts, drawn=True)


def _test_only(classes: int, per_class: int) -> Sizes:
    return Sizes(classes=classes, counts={"test": classes * per_class}, drawn=True)


def _write_pool(folder: Path, rng: np.random.Generator) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(POOL_IMAGES):
        picture = paint(i % len(KINDS), _size_px(FILE_PX, rng), rng)
        (folder / f"{i:05d}.jpg").write_bytes(jpeg(picture))


def _kinds(classes: int, first: int) -> list[int]:
    """5 and the number of kinds have no common factor, so no kind comes twice."""
    return [(first + 5 * i) % len(KINDS) for i in range(classes)]


def _draw_jpeg(
    kinds: list[int], px: tuple[int, int], rng: np.random.Generator, label: int
) -> bytes:
    return jpeg(paint(kinds[label], _size_px(px, rng), rng), comment=f"class {label}")


def _painted_class(rng: np.random.Generator, wnid: str) -> Pixels:
    """A new image of a class of the small ImageNet."""
    label = layouts.imagenet_wnids(IMAGENET_PLAN).index(wnid)
    kind = _kinds(IMAGENET_PLAN.classes, IMAGENET_FIRST_KIND)[label]
    return paint(kind, _size_px(FILE_PX, rng), rng)


def _draw_corrupted(rng: np.random.Generator, wnid: str, severity: int) -> bytes:
    """Noise of the severity, whatever the corruption is called."""
    pixels = _painted_class(rng, wnid)
    noisy = pixels + rng.normal(0, 8 * severity, size=pixels.shape)
    return jpeg(np.clip(noisy, 0, 255).astype(np.uint8))


def _draw_bordered(rng: np.random.Generator, wnid: str) -> bytes:
    pixels = _painted_class(rng, wnid)
    inside = slice(BORDER_PX, -BORDER_PX)
    framed = np.empty_like(pixels)
    framed[:] = (255, 0, 0)
    framed[inside, inside] = pixels[inside, inside]
    return png(framed)


def _size_px(px: tuple[int, int], rng: np.random.Generator) -> tuple[int, int]:
    height, width = rng.integers(px[0], px[1] + 1, size=2)
    return int(height), int(width)


def _draw_cifar(kinds: list[int], rng: np.random.Generator, label: int) -> Pixels:
    return paint(kinds[label], (CIFAR_PX, CIFAR_PX), rng)


def _refuse_foreign(data: Path, key: str, folder: str) -> None:
    marked = small_sizes(data).get(key)
    if (data / folder).exists() and not (marked and marked.drawn):
        raise DataError(
            f"{data / folder} exists and was not generated; "
            "generate into another folder, or move it away"
        )
