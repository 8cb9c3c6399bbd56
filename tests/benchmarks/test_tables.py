"""All pages of a results folder: overview, methods, and how they are written."""

import re
from pathlib import Path

import pytest

from benchmarks.report_parts.page import report_page
from benchmarks.tables import write_tables
from tests.synthetic_records import blocks, page, put, record, transfer_records


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    transfer_records(tmp_path)
    transfer_records(tmp_path, schedule="smoke", backbone="other")
    first = {path: path.read_bytes() for path in write_tables(tmp_path)}
    assert {path: path.read_bytes() for path in write_tables(tmp_path)} == first


def test_a_torn_file_is_a_warning_below_the_overview(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    (tmp_path / "mine" / "torn.json").write_text('{"format": "ssl-rec')
    put(tmp_path / "mine", "foreign.json", {"format": "ssl-record/9"})
    (tmp_path / "mine" / "list.json").write_text("[1]")
    text = page(tmp_path, "overview.md")
    assert text.count("- warning: mine/") == 3
    assert "86.0" in text


@pytest.mark.parametrize("folder", ["records", "records/snapshots"])
def test_an_edited_record_is_named_and_not_used(tmp_path: Path, folder: str) -> None:
    record(tmp_path / folder, 46.0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text().replace("46.0", "96.0"))
    text = page(tmp_path, "overview.md")
    assert f"{path.relative_to(tmp_path)}: not used (edited" in text
    assert f"{path.relative_to(tmp_path)}: not used (edited" in report_page(tmp_path)
    assert "96.0" not in text


def test_the_overview_has_a_part_per_schedule(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    record(tmp_path, 20.0, schedule="smoke", hash="s", small="generated")
    text = page(tmp_path, "overview.md")
    assert "## Paper schedule, full data" in text
    assert "## Smoke schedule, generated data" in text


def test_protocols_have_columns_of_their_own_in_the_overview(tmp_path: Path) -> None:
    for protocol, score in (("jcl-2020/1", 60.0), ("looc-2020/1", 70.0)):
        record(tmp_path, score, task="in100_linear", protocol=protocol)
    text = page(tmp_path, "overview.md")
    assert re.search(r"in100 jcl-2020 \| +in100 looc-2020 \|", text)
    assert blocks(text)[0]["mine"] == ["60.0", "70.0"]


def test_a_missing_results_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_tables(tmp_path / "nowhere")


def test_an_interrupted_write_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page(tmp_path)
    record(tmp_path, 86.0)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tables(tmp_path)
    assert [path.name for path in (tmp_path / "tables").glob(".*")] == []
    assert (tmp_path / "tables" / "co2_table3.md").read_text() == before


def test_methods_of_one_size_stand_in_one_table_with_the_initialization_first(
    tmp_path: Path,
) -> None:
    for method, top1 in (("jcl", 40.0), ("random", 30.0), ("moco", 39.0)):
        made_by = {"method": method, "recipe": f"{method}/cifar10-cpu", "epochs": 1}
        for task in ("cifar10_knn", "cifar10_linear"):
            probe = {"task": task, "protocol": "uniclr-2022/1", "arch": "resnet18"}
            record(tmp_path, top1, made_by=made_by, backbone=method, **probe)
    text = page(tmp_path, "methods.md")
    numbers = re.findall(r"^\| (\w+) +\| +\**([\d.]+).*?\| +\**([\d.]+)", text, re.MULTILINE)
    assert numbers == [
        ("random", "30.0", "30.0"),
        ("jcl", "40.0", "40.0"),
        ("moco", "39.0", "39.0"),
    ]
