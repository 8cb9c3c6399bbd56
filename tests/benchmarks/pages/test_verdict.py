"""How far a number may lie from the paper's, and when weights are doubted."""

from pathlib import Path

import pytest

from benchmarks.pages.records import UNTRAINED
from benchmarks.pages.verdict import verdict
from tests.synthetic_records import page, record

COCO = {"task": "coco_det", "protocol": "jcl-2020/1", "engine": "torchvision"}
NOT_LOADED = "weights may not be loaded"


def test_coco_is_held_to_the_spread_of_its_reruns(subtests: pytest.Subtests) -> None:
    for difference, said in [(0.3, "pass"), (-0.3, "pass"), (0.6, "warn"), (-0.61, "fail")]:
        with subtests.test(difference=difference, said=said):
            assert verdict(difference, "coco_det") == said


@pytest.mark.parametrize(("score", "doubted"), [(31.0, True), (33.0, True), (33.5, False)])
def test_a_detector_no_better_than_a_random_one_is_doubted(
    tmp_path: Path, score: float, doubted: bool
) -> None:
    record(tmp_path, score, **COCO)
    assert (NOT_LOADED in page(tmp_path, "jcl_table2.md")) == doubted


def test_where_the_paper_has_no_random_row_ours_counts(tmp_path: Path) -> None:
    voc = {"task": "voc0712_det_c4", "protocol": "co2-2021/1"}
    random = {"backbone": "random", "made_by": {"method": UNTRAINED}}
    record(tmp_path, 34.0, **voc)
    assert NOT_LOADED not in page(tmp_path, "co2_table3.md")
    record(tmp_path, 33.8, **voc, **random, sha256="b" * 64)
    assert NOT_LOADED in page(tmp_path, "co2_table3.md")
