"""Which tasks each paper reports, and the number by which each task is told."""

TRANSFER_SETS = (
    "aircraft",
    "birdsnap",
    "caltech101",
    "cars",
    "cifar10",
    "cifar100",
    "dtd",
    "flowers",
    "food",
    "pets",
    "places365",
    "sun397",
)
"""LORAC's Table II, in its order."""

TRANSFER = tuple(f"transfer_linear/{key}" for key in TRANSFER_SETS)
AVERAGE = "transfer_linear/average"
"""No task of its own: the unweighted mean of the twelve."""

SUITES: dict[str, tuple[str, ...]] = {
    "jcl": (
        "in1k_linear@jcl",
        "in100_linear@jcl",
        "coco_det",
        "coco_insseg",
        "coco_keypoint",
    ),
    "co2": (
        "in1k_linear@co2",
        "in100_linear@co2",
        "in1k_semi_1pct@co2",
        "in1k_semi_1pct@co2-v1",
        "in1k_semi_10pct@co2",
        "in1k_semi_10pct@co2-v1",
        "voc07_svm",
        "voc0712_det_c4",
        "voc12_seg_fcn",
    ),
    "lorac": (
        "in1k_linear@lorac",
        "in1k_linear@moco",
        *TRANSFER,
        "in1k_semi_1pct@lorac",
        "in1k_semi_10pct@lorac",
        "coco_det",
        "coco_insseg",
        "coco_keypoint",
        "in100_linear@lorac",
        "in100_linear@lorac-moco",
    ),
    "uniclr": (
        "in1k_linear@uniclr",
        "in1k_linear@uniclr-0.4",
        "cifar10_linear",
        "cifar100_linear",
        "in100_linear@uniclr",
        "cifar10_knn",
        "cifar100_knn",
    ),
    "looc": (
        "rotation4_linear",
        "in100_linear@looc",
        "inat1k_linear",
        "cub200_linear",
        "flowers102_fewshot",
        "objectnet13_eval",
        "imagenet_c100_eval",
    ),
}
"""Per paper the keys of TASKS, in the order of its tables; some are of later issues."""

PRIMARY_METRIC = {
    "transfer_linear/aircraft": "mean_per_class",
    "transfer_linear/caltech101": "mean_per_class",
    "transfer_linear/flowers": "mean_per_class",
    "transfer_linear/pets": "mean_per_class",
    AVERAGE: "mean",
    "voc07_svm": "mAP",
    "voc0712_det_c4": "AP",
    "voc12_seg_fcn": "mIoU",
    "coco_det": "AP",
    "coco_insseg": "AP",
    "coco_keypoint": "AP",
    "rotation4_linear": "acc",
    "flowers102_fewshot": "acc_5shot",
    "imagenet_c100_eval": "all_top1",
    "cifar10_lowshot_knn": "top1_1pct",
    "cifar100_lowshot_knn": "top1_1pct",
    "in100_lowshot_knn": "top1_1pct",
    "cifar10_fewshot": "acc_5shot",
}
"""Per task id; every other task is told by its top-1 accuracy."""


def primary_metric(task: str) -> str:
    """The name, in the record, of the number that stands for a task."""
    return PRIMARY_METRIC.get(task, "top1")


BUILT_TASKS = (
    *TRANSFER,
    "voc07_svm",
    "in1k_linear",
    "cifar10_linear",
    "cifar100_linear",
    "in100_linear",
    "rotation4_linear",
    "inat1k_linear",
    "cub200_linear",
    "in1k_semi_1pct",
    "in1k_semi_10pct",
    "cifar10_knn",
    "cifar100_knn",
    "in100_knn",
    "cifar10_lowshot_knn",
    "cifar100_lowshot_knn",
    "flowers102_fewshot",
    "objectnet13_eval",
    "imagenet_c100_eval",
    "coco_det",
    "coco_insseg",
    "coco_keypoint",
    "voc0712_det_c4",
    "voc12_seg_fcn",
)
"""Ids of TASKS, written again because that registry imports torch and the tables must not; in the
order of the overview."""
