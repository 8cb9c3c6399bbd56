"""A schedule is a name or a share of the paper's length."""

import pytest

from transfer.finetuning.options import length_fraction, with_batch
from transfer.frozen.probe_training import ProbeTraining
from transfer.tasks import TASKS
from transfer.tasks.detection import Detection
from transfer.tasks.few_shot import FewShot
from transfer.tasks.linear_transfer import LinearTransfer
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.semi_supervised import SemiSupervised


def test_a_schedule_is_a_name_or_a_share() -> None:
    lengths = {"paper": 1, "short": 0.1, "smoke": 0, "0.02": 0.02}
    assert {schedule: length_fraction(schedule) for schedule in lengths} == lengths
    for schedule in ["long", "0", "1", "-0.1", "nan", ""]:
        with pytest.raises(ValueError, match=f"'{schedule}'"):
            length_fraction(schedule)


def test_the_smallest_share_of_every_training_has_at_least_one_step() -> None:
    for key, whole in TASKS.items():
        task = whole.at_schedule("0.000001")
        if isinstance(task, LinearTransfer):
            assert ProbeTraining.of(task).num_steps(1000) >= 1, key
        elif isinstance(task, SemiSupervised):
            assert task.course(1000, 1.0).iterations >= 1, key
        elif isinstance(task, Detection | Segmentation):
            assert task.recipe.iterations >= 1, key
        elif isinstance(task, FewShot):
            assert task.iterations >= 1, key


def test_a_batch_larger_than_all_images_of_a_training_leaves_one_step() -> None:
    task = TASKS["voc12_seg_fcn"]
    assert isinstance(task, Segmentation)
    recipe = with_batch(task.recipe, 2**24)
    assert (recipe.iterations, set(recipe.milestones)) == (1, {1})
