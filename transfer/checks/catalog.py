"""All checks, in the order in which they run. What computes is imported by the check that runs."""

from functools import partial
from importlib.util import find_spec

from transfer.checks.report import Check, Facts, NotCheckedError, Place
from transfer.detection.engines import EngineName
from transfer.detection.recipe import (
    COCO_4CONV1FC,
    COCO_4CONV1FC_MASKS,
    COCO_FPN,
    COCO_FPN_KEYPOINTS,
    COCO_FPN_MASKS,
    VOC_C4,
    VOC_C4_MOCO,
    VOC_C4_NONE,
    DetectorRecipe,
)

DETECTORS = {
    "coco_det": COCO_FPN,
    "coco_insseg": COCO_FPN_MASKS,
    "coco_keypoint": COCO_FPN_KEYPOINTS,
    "coco_det@4conv1fc": COCO_4CONV1FC,
    "coco_insseg@4conv1fc": COCO_4CONV1FC_MASKS,
    "voc0712_det_c4": VOC_C4,
    "voc0712_det_c4@moco": VOC_C4_MOCO,
    "voc0712_det_c4@none": VOC_C4_NONE,
}
"""Recipes by the key of their task."""
ENGINES: tuple[EngineName, ...] = ("torchvision", "detectron2")
ARCHITECTURES = ("resnet18", "resnet50")


def all_checks() -> list[Check]:
    """Return all checks: first what must be equal, then what is measured."""
    return [
        *feature_checks(),
        *segmentation_checks(),
        *process_checks(),
        *resume_checks(),
        *detector_checks(),
        *rate_checks(),
    ]


def feature_checks() -> list[Check]:
    """Return the checks of frozen features and of what is computed on them."""
    features = [
        Check(
            name=f"features of {arch} in {precision}",
            group="features",
            seconds=2.0,
            run=partial(_features, arch, precision),
        )
        for arch in ARCHITECTURES
        for precision in ("float32", "bfloat16")
    ]
    return [
        *features,
        Check(name="nearest neighbors", group="features", seconds=0.5, run=_nearest),
        Check(name="linear heads", group="features", seconds=0.5, run=_heads),
    ]


def segmentation_checks() -> list[Check]:
    """Return the checks of the segmentation network."""
    return [
        Check(
            name="voc12_seg_fcn against the CPU",
            group="segmentation",
            seconds=4.0,
            run=_segmentation_answers,
        ),
        Check(
            name="voc12_seg_fcn in low precision",
            group="segmentation",
            seconds=2.0,
            run=_segmentation_low_precision,
        ),
    ]


def process_checks() -> list[Check]:
    """Return the checks over several processes."""
    return [
        Check(
            name=f"{kind} over several processes",
            group="processes",
            seconds=15.0,
            run=partial(_norm, kind),
        )
        for kind in ("SyncBN", "naiveSyncBN")
    ]


def resume_checks() -> list[Check]:
    """Return the checks of resumed trainings."""
    return [
        Check(name="classifier resumed", group="resume", seconds=2.0, run=_resumed_classifier),
        Check(name="detector resumed", group="resume", seconds=2.0, run=_resumed_detector),
    ]


def detector_checks() -> list[Check]:
    """Return the checks of all detectors of the torchvision engine, then those of detectron2."""
    checks = []
    for engine in ENGINES:
        for key, recipe in DETECTORS.items():
            name = key if engine == "torchvision" else f"{key} of detectron2"
            answers = partial(_detector_answers, recipe, engine)
            low = partial(_detector_low_precision, recipe, engine)
            checks += [
                Check(name=f"{name} against the CPU", group="detectors", seconds=4.0, run=answers),
                Check(name=f"{name} in low precision", group="detectors", seconds=1.5, run=low),
            ]
    return checks


def rate_checks() -> list[Check]:
    """Return the measurements that plans use, and those of detectron2 beside them."""
    features = [
        Check(
            name=f"rate of features of {arch} in {precision}",
            group="features",
            seconds=3.0,
            run=partial(_feature_rate, arch, precision),
            measures=True,
        )
        for arch in ARCHITECTURES
        for precision in ("float32", "bfloat16")
    ]
    probe = Check(
        name="rate of a linear probe", group="features", seconds=3.0, run=_probe_rate, measures=True
    )
    # C4 recipes differ in a norm or two, so that one is measured
    measured = {key: recipe for key, recipe in DETECTORS.items() if "c4@" not in key}
    detectors = [
        Check(
            name=f"rate of {key}",
            group="detectors",
            seconds=12.0,
            run=partial(_detector_rate, recipe),
            measures=True,
        )
        for key, recipe in measured.items()
    ]
    segmentation = Check(
        name="rate of voc12_seg_fcn",
        group="segmentation",
        seconds=8.0,
        run=_segmentation_rate,
        measures=True,
    )
    classifier = Check(
        name="rate of classifier",
        group="fine-tuning",
        seconds=8.0,
        run=_classifier_rate,
        measures=True,
    )
    return [*features, probe, classifier, segmentation, *detectors]


def _features(arch: str, precision: str, place: Place) -> Facts:
    from transfer.checks import features

    check = features.check_float32 if precision == "float32" else features.check_bfloat16
    return check(arch, place)


def _nearest(place: Place) -> Facts:
    from transfer.checks.features import check_nearest

    return check_nearest(place)


def _heads(place: Place) -> Facts:
    from transfer.checks.features import check_heads

    return check_heads(place)


def _feature_rate(arch: str, precision: str, place: Place) -> Facts:
    from transfer.checks.features import measure_features

    return measure_features(arch, "float32" if precision == "float32" else "bfloat16", place)


def _probe_rate(place: Place) -> Facts:
    from transfer.checks.features import measure_probe

    return measure_probe(place)


def _classifier_rate(place: Place) -> Facts:
    from transfer.checks.classifier import measure_steps

    return measure_steps(place)


def _segmentation_answers(place: Place) -> Facts:
    _require_mmsegmentation()
    from transfer.checks.segmentation import check_answers

    return check_answers(place)


def _segmentation_low_precision(place: Place) -> Facts:
    _require_mmsegmentation()
    from transfer.checks.segmentation import check_low_precision

    return check_low_precision(place)


def _segmentation_rate(place: Place) -> Facts:
    _require_mmsegmentation()
    from transfer.checks.segmentation import measure_steps

    return measure_steps(place)


def _norm(kind: str, place: Place) -> Facts:
    from transfer.checks.processes import check_norm

    return check_norm(kind, place)


def _resumed_classifier(place: Place) -> Facts:
    from transfer.checks.resume import check_classifier

    return check_classifier(place)


def _resumed_detector(place: Place) -> Facts:
    from transfer.checks.resume import check_detector

    return check_detector(place)


def _detector_answers(recipe: DetectorRecipe, engine: EngineName, place: Place) -> Facts:
    from transfer.checks.detectors import check_answers

    return check_answers(recipe, engine, place)


def _detector_low_precision(recipe: DetectorRecipe, engine: EngineName, place: Place) -> Facts:
    from transfer.checks.detectors import check_low_precision

    return check_low_precision(recipe, engine, place)


def _detector_rate(recipe: DetectorRecipe, place: Place) -> Facts:
    from transfer.checks.detectors import measure_steps

    return measure_steps(recipe, "torchvision", place)


def _require_mmsegmentation() -> None:
    if find_spec("mmseg") is None:
        raise NotCheckedError("mmsegmentation is not installed")
