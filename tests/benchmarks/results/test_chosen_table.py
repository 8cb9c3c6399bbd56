"""One table of chosen checkpoints and tasks, for a paper."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables
from benchmarks.results import tables as module
from benchmarks.results.chosen_table import ChosenTable, chosen_table, tables_of_groups
from benchmarks.results.contents import read_contents
from benchmarks.results.differences import Difference, Score
from tests.synthetic_records import record

CIFAR: dict[str, Any] = {"task": "cifar10_knn", "protocol": "uniclr-2022/1"}


def chosen(folder: Path, names: tuple[str, ...] = (), tasks: tuple[str, ...] = ()) -> ChosenTable:
    return chosen_table(read_contents(folder).numbers, names, tasks)


def texts(table: ChosenTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.table.cells()]


def test_chosen_table_has_the_requested_order(tmp_path: Path) -> None:
    for seed, top1 in enumerate((70.0, 71.0)):
        record(tmp_path, top1, name="mine", seed=seed, **CIFAR)
    record(tmp_path, 80.0, name="mine")
    record(tmp_path, 60.0, name="moco", sha256="b" * 64, **CIFAR)
    record(tmp_path, 50.0, name="other", sha256="c" * 64)
    table = chosen(tmp_path, ("moco", "mine"), ("voc07_svm", "cifar10_knn"))
    assert texts(table) == [
        ["checkpoint", "voc07_svm", "cifar10", "mean"],
        ["moco", "–", "60.0", "–"],
        ["mine", "80.0", "70.5 ± 0.7", "75.2"],
    ]
    assert "mine, cifar10: 2 runs, seeds 0, 1; mean ± standard deviation." in table.notes
    assert [row[0] for row in texts(chosen(tmp_path, (), ("voc07_svm",)))[1:]] == [
        "mine", "moco", "other",
    ]  # fmt: skip
    assert texts(chosen(tmp_path, ("mine", "moco")))[0] == ["checkpoint", "cifar10"], "in common"


def test_a_mean_leaves_out_cosines(tmp_path: Path) -> None:
    record(tmp_path, 70.0, **CIFAR)
    record(tmp_path, 60.0)
    record(tmp_path, -20.0, task="cifar10_view_statistics", metric="mean_cosine")
    header, row = texts(chosen(tmp_path))
    assert dict(zip(header, row, strict=True))["mean"] == "65.0"
    assert "-20.0" in row


def test_tasks_are_selected_by_group_and_variant(tmp_path: Path) -> None:
    for key in ("transfer_linear/cars", "transfer_linear/dtd"):
        record(tmp_path, 60.0, task=key, protocol="lorac-2021/1", request={"task": key})
    for key, protocol in (("in1k_linear@co2", "co2-2021/1"), ("in1k_linear@jcl", "jcl-2020/1")):
        record(tmp_path, 60.0, task="in1k_linear", protocol=protocol, request={"task": key})
    table = chosen(tmp_path, (), ("transfer_linear", "in1k_linear"))
    labels = ["cars", "dtd", "in1k_linear@co2", "in1k_linear@jcl"]
    assert texts(table)[0] == ["checkpoint", *labels, "mean"]
    assert texts(chosen(tmp_path, (), ("in1k_linear@jcl",)))[0] == ["checkpoint", "in1k_linear@jcl"]


def test_each_group_of_tasks_has_a_table_of_its_checkpoints(tmp_path: Path) -> None:
    for name in ("mine", "moco"):
        record(tmp_path, 60.0, name=name, sha256=name, **CIFAR)
    for name in ("mine", "other"):
        record(tmp_path, 80.0, name=name, sha256=name)
    record(
        tmp_path, 50.0, name="mine", sha256="mine", task="cifar100_knn", protocol="uniclr-2022/1"
    )
    tables = tables_of_groups(read_contents(tmp_path).numbers)
    assert [[row[0] for row in texts(table)[1:]] for table in tables.values()] == [
        ["mine", "moco"], ["mine", "other"], ["mine", "moco", "other"]
    ]  # fmt: skip
    columns = [texts(table)[0][1:] for table in tables.values()]
    assert columns == [["cifar10"], ["voc07_svm"], ["cifar10", "voc07_svm", "mean"]]
    assert [*tables][-1] == "All tasks"


@pytest.mark.parametrize(
    ("p_values", "is_bold"), [((0.02, 0.04), True), ((0.03, 0.04), False), ((0.001, 0.06), False)]
)
def test_bold_is_ahead_of_every_other_row_after_holms_correction(
    p_values: tuple[float, float], is_bold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, top1 in (("a", 60.0), ("b", 70.0), ("c", 65.0)):
        record(tmp_path, top1, name=name, sha256=name * 64, **CIFAR)
    chances = {60.0: p_values[0], 65.0: p_values[1]}

    def difference(first: Score, second: Score, task: str) -> Difference:
        assert (first.mean, task) == (70.0, "cifar10_knn")
        return Difference(first.mean - second.mean, 1.0, chances[second.mean])

    monkeypatch.setattr(module, "difference", difference)
    cells = [row[1] for row in chosen(tmp_path).table.cells()]
    assert [cell.text for cell in cells if cell.best] == (["70.0"] if is_bold else [])


def test_column_has_the_schedule_of_most_checkpoints(tmp_path: Path) -> None:
    record(tmp_path, 60.0, name="a", **CIFAR)
    for name in ("a", "b"):
        record(tmp_path, 50.0, name=name, sha256=name * 64, schedule="smoke", **CIFAR)
    record(tmp_path, 61.0, name="a", sha256="a" * 64, task="voc07_svm")
    table = chosen(tmp_path, ("a", "b"), ("cifar10_knn",))
    assert texts(table)[1:] == [["a", "50.0"], ["b", "50.0"]]
    assert "smoke" in table.notes[1]


def test_columns_of_one_protocol_share_a_note(tmp_path: Path) -> None:
    for task in ("cifar10_knn", "cifar100_knn"):
        record(tmp_path, 60.0, task=task, protocol="uniclr-2022/1")
    _, note = chosen(tmp_path).notes
    start = "cifar100 (cifar100_knn), cifar10 (cifar10_knn): top1; protocol uniclr-2022/1; "
    assert note.startswith(start)


def test_a_column_may_have_several_input_sizes_and_says_so(tmp_path: Path) -> None:
    for name, px in (("resnet", 32), ("vit", 224)):
        names = {"name": "uniclr-2022/1", "hash": f"{px}", "paper_hash": "32"}
        content: dict[str, Any] = {"protocol": {**names, "fields": {"crop_px": px}}}
        content |= {"departures": [f"crop_px {px} instead of 32"] if px > 32 else []}
        record(tmp_path, 60.0, name=name, sha256=name, task="cifar10_knn", content=content)
    table = chosen(tmp_path)
    assert texts(table)[1:] == [["resnet", "60.0"], ["vit", "60.0"]]
    assert "vit, cifar10: crop_px 224 instead of 32." in table.notes


def test_command_prints_latex_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 70.0, name="my_net", **CIFAR)
    args = ["--results", str(tmp_path), "--name", "my_net", "--tasks", "cifar10_knn"]
    assert tables.main([*args, "--format", "latex"]) == 0
    lines = capsys.readouterr().out.splitlines()
    body = [line for line in lines if not line.startswith("%")]
    assert body[2:5] == [r"checkpoint & cifar10 \\", r"\midrule", r"my\_net & 70.0 \\"]
    assert tables.main([*args, "--format", "csv"]) == 0
    output = capsys.readouterr()
    assert output.out == "checkpoint,cifar10\nmy_net,70.0\n"
    assert "protocol uniclr-2022/1" in output.err
    assert tables.main(args) == 0
    assert capsys.readouterr().out.startswith("| checkpoint | cifar10 |")
    assert [path.name for path in tmp_path.iterdir()] == ["records"]


def test_names_in_csv_have_no_escapes_of_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 70.0, name="_net_[v2]", **CIFAR)
    args = ["--results", str(tmp_path), "--name", "_net_[v2]", "--tasks", "cifar10_knn"]
    assert tables.main([*args, "--format", "csv"]) == 0
    assert capsys.readouterr().out == "checkpoint,cifar10\n_net_[v2],70.0\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "jlc"], "--name: no results of 'jlc'; nearest: jcl (--results "),
        (["--name", "jcl", "--tasks", "voc07_svm"], "these checkpoints have cifar10_knn"),
        (["--format", "csv"], "all numbers are in results.csv"),
    ],
)
def test_what_has_no_results_is_named(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 70.0, name="jcl", request={"task": "cifar10_knn"}, **CIFAR)
    assert tables.main(["--results", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
