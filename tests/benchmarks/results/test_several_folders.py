"""Tables and the report show the records of several results folders."""

import re
from pathlib import Path

import pytest

from benchmarks import report, tables
from benchmarks.results import contents
from benchmarks.results.contents import read_contents
from tests.synthetic_records import failure, record


def test_rows_of_all_folders_stand_on_pages_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "their results"
    record(mine, 60.0, name="jcl")
    record(theirs, 70.0, name="moco")
    assert tables.main(["--results", str(mine), str(theirs)]) == 0
    text = (mine / "tables" / "overview.md").read_text()
    assert re.search(r"^\| jcl .*60\.0", text, re.MULTILINE)
    assert re.search(r"^\| moco .*70\.0", text, re.MULTILINE)
    assert f"benchmarks.tables --results {mine} '{theirs}'" in text
    assert "../their results/records/moco/" in (mine / "results.csv").read_text()
    assert report.main(["--results", str(mine), str(theirs)]) == 0
    page = (mine / "report" / "index.html").read_text()
    assert "moco" in page
    assert str(tmp_path) not in page
    assert not (theirs / "tables").exists()
    assert capsys.readouterr().err == ""


def test_a_cell_in_two_folders_is_that_of_the_first(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    record(mine, 60.0, name="jcl")
    record(theirs, 61.0, name="jcl")
    failure(mine, "voc07_svm", "out of memory")
    record(theirs, 62.0)
    results = read_contents(mine, theirs).results
    assert [[*run.metrics.values()] for run in results.succeeded] == [[60.0], [62.0]]
    (unused,) = results.unused
    assert unused.startswith("../theirs/records/jcl/")
    assert "not used (the same cell as records/jcl/" in unused
    assert results.runs == results.succeeded, "the other folder has the failed cell's record"


def test_backbones_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    record(mine, 60.0, name="moco")
    record(mine, 50.0, name="jcl", sha256="c" * 64)
    record(theirs, 70.0, name="moco", sha256="b" * 64)
    assert tables.main(["--results", str(mine), str(theirs)]) == 0
    text = (mine / "tables" / "overview.md").read_text()
    rows = re.findall(r"^\| (\w+[^|]*?) +\| +\**\d+\.\d", text, re.MULTILINE)
    assert rows == ["jcl", "moco (mine)", "moco (theirs)"]


def test_a_folder_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    record(tmp_path, 60.0, name="jcl")
    folders = contents.results_folders([tmp_path, tmp_path / "."], with_reference=False)
    assert folders == [tmp_path]


def test_with_reference_adds_the_results_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "results", 60.0, name="jcl")
    args = ["--results", str(tmp_path / "results"), "--with-reference"]
    assert tables.main(args) == 0
    text = (tmp_path / "results" / "tables" / "overview.md").read_text()
    assert "lite0-imagenet" in text
    assert "| jcl" in text
    monkeypatch.setattr(contents, "REFERENCE_FOLDER", tmp_path / "site" / "results")
    capsys.readouterr()
    assert tables.main(args) == 2
    assert "records are in results/reference of its repository" in capsys.readouterr().err
