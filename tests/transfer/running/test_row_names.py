"""Names of rows that can be no folder are refused, and a mistyped name of anything gets advice."""

import pytest

from benchmarks.planning.cells import task_keys
from pretrain.__main__ import main
from transfer.datasets.catalog import dataset_info
from transfer.datasets.expected import DataError
from transfer.running.row_names import MOST_BYTES, RESERVED, check_row_name, nearest

WRONG = {
    "../outside": "holds a slash",
    "..": "starts with '.'",
    "/tmp/outside": "holds a slash",
    "a/b": "holds a slash",
    "a|b": "a bar",
    "": "is empty",
    "  ": "is empty",
    ".hidden": "starts with '.'",
    "-x": "starts with '-'",
    "a\nb": "cannot be seen",
    "a\0b": "cannot be seen",
    "caf\udce9": "not UTF-8",
    "x" * (MOST_BYTES + 1): "bytes, of which",
    "ü" * (MOST_BYTES // 2 + 1): "bytes, of which",
    "Tables": "means something else below the results",
    **dict.fromkeys(RESERVED, "means something else below the results"),
}


def test_a_name_that_can_be_no_folder_is_refused_with_what_to_do() -> None:
    for name, why in WRONG.items():
        with pytest.raises(ValueError, match=rf"^--name '.*{why}") as refusal:
            check_row_name(name, "jcl")
        assert len(str(refusal.value).encode()) < 300
        with pytest.raises(ValueError, match=rf"^the name .*{why}.* --name$"):
            check_row_name(name, name)
    for name in ["jcl", "MoCo v2+ (800)", "épreuve", "x" * MOST_BYTES, "a.b@1"]:
        check_row_name(name, "jcl")


@pytest.mark.parametrize(
    ("name", "first"),
    [("voc7_svm", "voc07_svm"), ("VOC07", "voc07_svm"), ("cifr10_knn", "cifar10_knn")],
)
def test_what_resembles_most_comes_first(name: str, first: str) -> None:
    known = ("cifar100_knn", "coco_det", "voc07_svm", "cifar10_knn", "in1k_linear")
    assert nearest(name, known).split(",")[0] == first
    assert nearest(name, known).count(",") == 1
    assert " or " in nearest(name, known)


def test_few_or_no_names_are_no_error() -> None:
    assert nearest("a", ()) == ""
    assert nearest("a", ("b",)) == "b"
    assert nearest("", ("b", "c")) == "b or c"


def test_commands_propose_the_name_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"no task 'coco_dett'; did you mean coco_det, "):
        task_keys("coco_dett", "")
    with pytest.raises(ValueError, match=r"no suite 'lorc'; did you mean lorac, "):
        task_keys("", "lorc")
    with pytest.raises(DataError, match=r"did you mean flowers, "):
        dataset_info("flower")
    assert main(["jcl/in1kr50"]) == 2
    assert "did you mean jcl/in1k-r50, " in capsys.readouterr().err
