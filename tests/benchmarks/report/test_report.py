"""The HTML page without a browser: what it holds, and how its command fails."""

import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.pages.published import transfer_tasks
from benchmarks.report import main, update_report
from benchmarks.report_parts.contents import read_contents
from benchmarks.report_parts.page import explained_records, report_page
from benchmarks.report_parts.picture import picture
from tests.benchmarks.report.complete_records import ENDS_SCRIPT, HOSTILE, complete, usual
from tests.synthetic_records import record


def test_the_page_is_one_file_below_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--results", str(usual(tmp_path))]) == 0
    path = tmp_path / "report" / "index.html"
    assert capsys.readouterr().out.splitlines() == [str(path)]
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", path.read_text())


def test_words_of_files_never_become_tags(tmp_path: Path) -> None:
    page = report_page(usual(tmp_path))
    assert HOSTILE not in page
    assert ENDS_SCRIPT.rstrip("\u2028") not in page
    script = page.partition('id="explanations">')[2]
    assert "\\u2028" in script
    assert "\u2028" not in script


def test_a_difference_has_its_verdict_as_sign_word_and_place(tmp_path: Path) -> None:
    complete(tmp_path, "mine", transfer_tasks()[0], metrics={"mean_per_class": 47.5})
    contents = read_contents(tmp_path)
    drawn = picture(contents, explained_records(contents))
    (one,) = (row for row in drawn.differences[transfer_tasks()[0]] if "LORAC, Air" in row.where)
    assert (one.verdict, one.sign) == ("pass", "✓")
    assert one.points == pytest.approx(-0.3)  # the paper prints 47.8
    assert one.x == pytest.approx(50 - 50 * 0.3 / drawn.half_axis, abs=0.001)
    assert one.pass_from < one.x < 50


def test_numbers_that_may_not_be_compared_stand_beside_the_best_published_one(
    tmp_path: Path,
) -> None:
    complete(tmp_path, "mine", transfer_tasks()[0], schedule="short")
    contents = read_contents(tmp_path)
    drawn = picture(contents, explained_records(contents))
    (strip,) = drawn.strips
    assert not drawn.differences
    assert strip.why == "Short schedule."
    assert strip.best_printed is not None
    assert strip.best_printed >= 47.8  # LORAC's


def test_the_best_published_number_is_one_under_the_same_protocol(tmp_path: Path) -> None:
    for protocol in ("co2-2021/1", "co2-2021-11point/1"):
        record(tmp_path, 61.0, protocol=protocol, small="generated")
    contents = read_contents(tmp_path)
    strips = picture(contents, explained_records(contents)).strips
    assert {strip.protocol: strip.best_printed for strip in strips} == {
        "co2-2021/1": 85.2,
        "co2-2021-11point/1": None,
    }


def test_an_empty_folder_gives_a_page_and_an_absent_one_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No results yet" in report_page(tmp_path)
    assert main(["--results", str(tmp_path / "absent")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_whatever_goes_wrong_ends_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, words in (
        (ModuleNotFoundError("no module", name="jinja2"), "-m pip install jinja2"),
        (RuntimeError("the dog\nate it"), "the dog"),
    ):
        monkeypatch.setattr("benchmarks.report.report_page", Mock(side_effect=error))
        assert not update_report(tmp_path)
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


def test_the_command_imports_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from benchmarks.report import main; main(sys.argv[1:]);"
        "sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, "--results", str(usual(tmp_path))]
    assert subprocess.run(command, capture_output=True).returncode == 0
