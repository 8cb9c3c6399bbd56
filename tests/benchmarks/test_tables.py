"""All pages of a results folder: overview, methods, and files."""

import json
import re
import shutil
from pathlib import Path

import pytest

from benchmarks import export, figures, power, report, tables
from benchmarks.explain import main as explain
from benchmarks.report_parts.page import report_page
from benchmarks.results.contents import read_contents
from benchmarks.results.records import read_results
from benchmarks.results.tables import (
    Cell,
    Grid,
    Line,
    Page,
    latex,
    plain,
)
from benchmarks.tables import main, write_tables
from pretrain.running.command_line import Main
from tests.synthetic_records import blocks, failure, page, put, record

ROOT = Path(__file__).parents[2]
OWN = ROOT / "results" / "reference"


def test_the_committed_records_give_the_committed_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_from_them = shutil.ignore_patterns("tables", "figures", "results.csv")
    here = Path("results/reference")  # the pages name the command that made them
    shutil.copytree(OWN, tmp_path / here, ignore=made_from_them)
    monkeypatch.chdir(tmp_path)
    created = [*write_tables(read_contents(here)), *(here / "figures").glob("*.csv")]
    created.append(here / "results.csv")
    assert [path for path in created if path.read_bytes() != (ROOT / path).read_bytes()] == []
    assert {path.name for path in created if path.suffix == ".md"} == {
        path.name for path in (OWN / "tables").iterdir()
    }


def test_overview_has_a_column_per_protocol(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        read_contents(tmp_path / "nowhere")
    for protocol, score in (("jcl-2020/1", 60.0), ("looc-2020/1", 70.0)):
        record(tmp_path, score, task="in100_linear", protocol=protocol)
    mine = tmp_path / "records" / "mine"
    (mine / "torn.json").write_text('{"format": "ssl-rec')
    put(mine, "foreign.json", {"format": "ssl-record/9"})
    (mine / "list.json").write_text("[1]")
    (mine / "gone.json").symlink_to(tmp_path / "removed")  # listed, not to be read
    text = page(tmp_path, "overview.md")
    assert text.count("- warning: records/mine/") == 4
    assert re.search(r"in100_linear@jcl \| +in100_linear@looc \|", text)
    assert blocks(text)[0]["mine"] == ["60.0", "70.0"]


def test_copies_of_records_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, score in enumerate((60.0, 62.0, 64.0)):
        record(tmp_path, score, seed=seed)
    failure(tmp_path, "cifar10_linear", "MemoryError: out of memory")
    expected = page(tmp_path, "overview.md").partition("## Beside")[0]
    mine = tmp_path / "records" / "mine"
    (first, *_) = sorted(mine.glob("*.seed0.json"))
    shutil.copytree(tmp_path / "records", tmp_path / "old" / "records")
    shutil.copytree(mine, mine.with_name("mine_backup"))
    shutil.copytree(mine, mine / "before")
    copies = "{0} (1).json|{0} 2.json|{0} (conflicted copy).json|{0}.json.json|{0}.json (1).json"
    copies += "|{0}.sync-conflict-20260101-120000-ABCDEFG.json|{0}-Laptop.json|{0}_BASE_12.json"
    names = [name.format(first.stem) for name in copies.split("|")]
    for name in names:
        shutil.copy(first, mine / name)
    capsys.readouterr()
    text = page(tmp_path, "overview.md")
    assert text.startswith(expected)
    where = first.relative_to(tmp_path).as_posix()
    for name in names:
        assert f"- warning: records/mine/{name}: not used (copied, renamed" in text
    assert f"expected at {where})" in text
    assert text.count("- warning: ") == len(names) + 3 * 4
    assert f"{len(names) + 3 * 4} files in {tmp_path}; " in capsys.readouterr().err


def test_two_records_of_one_cell_count_once(tmp_path: Path) -> None:
    record(tmp_path, 60.0)
    (path,) = tmp_path.rglob("*.json")
    shutil.copy(path, path.with_name(f"{path.stem}.batched-0123abcd.json"))
    text = page(tmp_path, "overview.md")
    assert f"0123abcd.json: not used (the same cell as records/mine/{path.name})" in text


def test_renamed_folder_of_a_row_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 60.0)
    (path,) = tmp_path.rglob("*.json")
    path.parent.rename(path.parent.with_name("new"))
    text = page(tmp_path, "overview.md")
    line = f"records/new/{path.name}: not used (copied, renamed or moved; expected at records/mine/"
    assert line in text
    assert "60.0" not in text
    output = capsys.readouterr().err
    assert "1 file in" in output
    assert line in output


@pytest.mark.parametrize("folder", ["records", "records/mine"])
def test_records_in_linked_folders_are_read(tmp_path: Path, folder: str) -> None:
    record(tmp_path / "results", 60.0)
    linked = tmp_path / "results" / folder
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "results" / "records" / "newest").symlink_to("mine")
    text = page(tmp_path / "results", "overview.md")
    assert blocks(text)[0] == {"mine": ["60.0"]}
    assert "records/newest/" in text
    assert "not used (copied, renamed or moved; expected at records/mine/" in text


def test_a_page_whose_records_are_gone_goes_too(tmp_path: Path) -> None:
    record(tmp_path, 60.0)
    (tmp_path / "tables").mkdir()
    for name in ("methods.md", "methods.tex", "methods_of_mine.md"):
        (tmp_path / "tables" / name).write_text("60.0")
    write_tables(read_contents(tmp_path))
    remaining = {path.name for path in (tmp_path / "tables").iterdir()}
    assert "overview.md" in remaining
    assert not remaining & {"methods.md", "methods.tex"}
    assert "methods_of_mine.md" in remaining


@pytest.mark.parametrize("folder", ["records", "records/snapshots"])
def test_an_edited_record_is_named_and_not_used(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / folder, 46.0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text().replace("46.0", "96.0"))
    text = page(tmp_path, "overview.md")
    assert f"{path.relative_to(tmp_path)}: not used (edited" in text
    assert f"{path.relative_to(tmp_path)}: not used (edited" in report_page(
        read_contents(tmp_path), []
    )
    assert "96.0" not in text
    named = ["--results", str(tmp_path), "--name", "mine", "--task", "voc07_svm"]
    for args in ([str(path)], *[named] * (folder == "records")):
        assert explain(args) == 2
        assert re.search(rf"{re.escape(path.name)}: not .*\(edited", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (tables.main, []),
        (tables.main, ["--name", "mine"]),
        (export.main, ["--name", "mine"]),
        (power.main, ["--name", "mine", "other"]),
        (report.main, []),
        (figures.main, []),
        (figures.main, ["--list"]),
        (explain, ["--name", "mine", "--task", "voc07_svm"]),
    ],
)
def test_each_command_names_the_edited_record_once(
    command: Main, args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mine", "other"):
        record(tmp_path, 46.0, name=name, sha256=name[0] * 64, request={"task": "voc07_svm"})
    record(tmp_path, 47.0, seed=1)
    (path,) = tmp_path.rglob("*seed1.json")
    path.write_text(path.read_text().replace("47.0", "97.0"))
    assert command(["--results", str(tmp_path), *args]) == 0
    warnings = capsys.readouterr().err
    assert warnings.count("not used as results: 1 file in ") == 1
    assert f"{path.relative_to(tmp_path)}: not used (edited" in warnings


def test_record_without_a_nested_entry_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, name in (("backbone", "arch"), ("protocol", "fields"), ("data", "counts")):
        results = tmp_path / part
        record(results / "records", 46.0)
        (path,) = results.rglob("*.json")
        content = json.loads(path.read_text())
        del (content[part]["set"] if part == "data" else content[part])[name]
        put(path.parent, path.name, content)
        message = f"{path.relative_to(results)}: not used (no {name} in its {part}"
        assert message in page(results, "overview.md")
        assert message in report_page(read_contents(results), [])
        assert explain([str(path)]) == 2
        assert f"{path}: not a usable record (no {name}" in capsys.readouterr().err


NUMBERS = Grid(
    texts=["method"],
    numbers=["top_1 | %"],
    lines=[
        Line(texts=["→ mine ¹²"], numbers=[Cell(text="71.2", suffix=" ± 0.3", best=True)]),
        Line(texts=["group"]),
        Line(texts=["*"], numbers=[Cell(text="3")]),
    ],
)
PAGE: Page = ["# Title", "Text.", "## A block", NUMBERS, "- note"]


def test_a_table_becomes_a_tabular_with_booktabs() -> None:
    assert (
        latex(PAGE)
        == r"""% A block
\begin{tabular}{lr}
\toprule
method & top\_1 | \% \\
\midrule
$\rightarrow$ mine $^{12}$ & \textbf{71.2} $\pm$ 0.3 \\
\textit{group} &  \\
{*} & 3 \\
\bottomrule
\end{tabular}
"""
    )
    assert latex(["# no table"]) == ""


def test_pages_in_latex_follow_later_records(tmp_path: Path) -> None:
    record(tmp_path, 60.0)
    assert main(["--results", str(tmp_path), "--format", "latex"]) == 0
    record(tmp_path, 70.0)
    write_tables(read_contents(tmp_path))
    text = (tmp_path / "tables" / "overview.tex").read_text()
    assert "70.0" in text
    assert "60.0" not in text


SHOWN = {
    "*best": (r"\*best", "{*}best"),
    "[ours] moco": (r"\[ours\] moco", "{[}ours] moco"),
    "a<student>": (r"a\<student>", "a$<$student$>$"),
    "__init__": (r"\_\_init\_\_", r"\_\_init\_\_"),
    "~old~": (r"\~old\~", r"\textasciitilde{}old\textasciitilde{}"),
    "snake_case": ("snake_case", r"snake\_case"),
    "=SUM(1)": ("=SUM(1)", "=SUM(1)"),
    "$x$": (r"\$x\$", r"\$x\$"),
}
"""Markdown and LaTeX of names."""


def test_names_are_shown_as_they_are(tmp_path: Path) -> None:
    for number, name in enumerate(SHOWN):
        record(tmp_path, 60.0, backbone=name, sha256=f"{number:064d}")
    assert main(["--results", str(tmp_path), "--format", "latex"]) == 0
    text = (tmp_path / "tables" / "overview.md").read_text()
    rows = re.findall(r"^\| (.*?) +\|", text.partition("## Backbones")[0], flags=re.MULTILINE)
    latex = (tmp_path / "tables" / "overview.tex").read_text()
    for in_markdown, in_latex in SHOWN.values():
        assert in_markdown in rows
        assert f"- {in_markdown}: resnet50" in text
        assert re.search(rf"^{re.escape(in_latex)} & ", latex, flags=re.MULTILINE), in_latex
    assert not re.search(r"^[\[*]", latex, flags=re.MULTILINE)


def test_plain_escapes_only_markup() -> None:
    same = ("a_b", "p < 0.05", "R&D", "2 > 1", "in100_knn: 1.5 (5 %)", "run@epoch0001", "a-b+c")
    assert [plain(text) for text in same] == [*same]
    assert plain("# x") == r"\# x"
    assert plain("1. x") == r"1\. x"
    assert plain("&lt;") == r"\&lt;"
    assert plain("`a` [b](c)") == r"\`a\` \[b\](c)"


def test_earlier_name_of_a_task_group_is_read(tmp_path: Path) -> None:
    record(tmp_path, 50.0, task="in1k_semi_1pct", content={"heading": "Few labels"})
    failure(tmp_path, "in1k_semi_10pct", "out of memory", heading="Few labels")
    assert {run.heading for run in read_results(tmp_path).runs} == {"Semi-supervised"}
