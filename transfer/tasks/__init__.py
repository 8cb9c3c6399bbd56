"""Evaluation tasks. Each file ends with its TASKS, which are merged here.

A new task needs its file, and its name in the import and in TASKS below.

task.py             base classes of tasks, named ablations
recipe_training.py  base class of detection and segmentation
linear_transfer.py  twelve datasets, learning rate chosen on val (LORAC Table II)
voc_svm.py          VOC 2007 classification with linear SVMs (CO2 Table 3)
linear_probe.py     probes with a fixed learning rate (all five papers, MoCo), rotation probe
knn.py              weighted kNN classification (UniCLR Figure 2)
few_shot.py         few images per class: linear classifiers (LooC Tables 2, 4, 5), kNN
robustness.py       the ImageNet-100 classifier on ObjectNet and ImageNet-C (LooC Tables 3, 4, 5)
semi_supervised.py  fine-tuning on a fraction of the labels (CO2 Table 2, LORAC Table III)
detection.py        COCO detection, masks and keypoints, VOC detection (JCL Table 2, CO2 Table 3)
segmentation.py     VOC 2012 segmentation (CO2 Table 3, DINOv2, Hummingbird)
view_statistics.py  statistics of random views of an image (JCL Figure 3, LORAC Figures 3, 4)
neighbors.py        the nearest training images of a few queries (LooC Figure 3)

A key is the task's id in the papers' tables. If papers differ in its protocol, the key ends with
the protocol variant: "in1k_linear@jcl".
"""

from fnmatch import fnmatchcase

from pretrain.running.command_line import nearest
from pretrain.running.plugins import with_plugins
from transfer.datasets.info import facts
from transfer.tasks import (
    detection,
    few_shot,
    knn,
    linear_probe,
    linear_transfer,
    neighbors,
    robustness,
    segmentation,
    semi_supervised,
    view_statistics,
    voc_svm,
)
from transfer.tasks.task import NamedTask as NamedTask
from transfer.tasks.task import Task
from transfer.tasks.task import TaskError as TaskError

OWN: dict[str, Task] = {
    **linear_transfer.TASKS,
    **voc_svm.TASKS,
    **linear_probe.TASKS,
    **knn.TASKS,
    **few_shot.TASKS,
    **robustness.TASKS,
    **semi_supervised.TASKS,
    **detection.TASKS,
    **segmentation.TASKS,
    **view_statistics.TASKS,
    **neighbors.TASKS,
}
TASKS = with_plugins(OWN, "tasks")
"""All tasks by key, including those that run only if named."""


def default_tasks() -> list[str]:
    """Return the keys of the tasks that run by default."""
    return [key for key, task in TASKS.items() if task.by_default]


def get(key: str) -> NamedTask:
    """Return the task of a key such as "transfer_linear/dtd", with its key.

    Raises TaskError if the key is unknown.
    """
    return NamedTask(key, task_of(key))


def task_of(key: str) -> Task:
    """Return the task of a key at the paper's schedule.

    Raises TaskError if the key is unknown.
    """
    if key in TASKS:
        return TASKS[key]
    advice = f"To evaluate all of them: benchmarks/run_all.py --tasks {key!r}"
    if keys := matching_keys(key):
        raise TaskError(
            f"{key!r} matches {len(keys)} tasks. Pass one of {', '.join(keys)}. {advice}"
        )
    if key in facts()["suites"]:
        raise TaskError(f"{key!r} is a paper with several tasks. Pass one task. {advice}")
    raise TaskError(
        f"unknown task {key!r}. Did you mean {nearest(key, TASKS)}? "
        f"To list all {len(TASKS)} tasks: python -m transfer --list"
    )


def matching_keys(name: str) -> list[str]:
    """Return the keys of TASKS that match a name or pattern.

    A name is a key, a task id without variant, or a group such as transfer_linear. Ids and groups
    match only tasks that run by default. Patterns such as "*_knn" work like file name patterns and
    match all keys.
    """
    if set("*?[") & set(name):
        return [key for key in TASKS if fnmatchcase(key, name)]
    by_default = [key for key in default_tasks() if name in (reading_of(key)[0], key.split("/")[0])]
    return by_default or ([name] if name in TASKS else [])


def reading_of(key: str) -> tuple[str, str]:
    """Split a key: "in100_linear@jcl" is task "in100_linear" in variant "jcl"."""
    task, _, variant = key.partition("@")
    return task, variant


def key_of(task: str, protocol: str) -> str:
    """Return the key of a task id under a protocol; the id if TASKS does not have the protocol.

    protocol: name; its version is ignored.
    """
    name = protocol.partition("/")[0]
    for key, candidate in TASKS.items():
        if (reading_of(key)[0], candidate.protocol.partition("/")[0]) == (task, name):
            return key
    return task
