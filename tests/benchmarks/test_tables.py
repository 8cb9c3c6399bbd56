"""All pages of a results folder: overview, methods, and how they are written."""

import json
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.explain import main as explain
from benchmarks.pages.table_rows import table
from benchmarks.report_parts.page import report_page
from benchmarks.tables import latex_tables, main, write_tables
from tests.synthetic_records import blocks, page, put, record

OWN = Path(__file__).parents[2] / "results"


def test_the_committed_records_give_the_committed_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_from_them = shutil.ignore_patterns("tables", "figures", "results.csv")
    shutil.copytree(OWN, tmp_path / "results", ignore=made_from_them)
    monkeypatch.chdir(tmp_path)
    made = [*write_tables(Path("results")), *Path("results/figures").glob("*.csv")]
    made.append(Path("results/results.csv"))
    assert [path for path in made if path.read_bytes() != (OWN.parent / path).read_bytes()] == []
    assert {path.name for path in made if path.suffix == ".md"} == {
        path.name for path in (OWN / "tables").iterdir()
    }


def test_a_torn_file_is_a_warning_and_protocols_have_columns_of_their_own_in_the_overview(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_tables(tmp_path / "nowhere")
    for protocol, score in (("jcl-2020/1", 60.0), ("looc-2020/1", 70.0)):
        record(tmp_path, score, task="in100_linear", protocol=protocol)
    (tmp_path / "mine" / "torn.json").write_text('{"format": "ssl-rec')
    put(tmp_path / "mine", "foreign.json", {"format": "ssl-record/9"})
    (tmp_path / "mine" / "list.json").write_text("[1]")
    (tmp_path / "mine" / "gone.json").symlink_to(tmp_path / "removed")  # listed, not to be read
    text = page(tmp_path, "overview.md")
    assert text.count("- warning: mine/") == 4
    assert re.search(r"in100 jcl-2020 \| +in100 looc-2020 \|", text)
    assert blocks(text)[0]["mine"] == ["60.0", "70.0"]


def test_a_page_whose_records_are_gone_goes_too(tmp_path: Path) -> None:
    record(tmp_path, 60.0)
    (tmp_path / "tables").mkdir()
    for name in ("methods.md", "curves_cifar10_knn.tex", "methods_of_mine.md"):
        (tmp_path / "tables" / name).write_text("60.0")
    write_tables(tmp_path)
    left = {path.name for path in (tmp_path / "tables").iterdir()}
    assert "overview.md" in left
    assert not left & {"methods.md", "curves_cifar10_knn.tex"}
    assert "methods_of_mine.md" in left


@pytest.mark.parametrize("folder", ["records", "records/snapshots"])
def test_an_edited_record_is_named_and_not_used(
    tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / folder, 46.0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text().replace("46.0", "96.0"))
    text = page(tmp_path, "overview.md")
    assert f"{path.relative_to(tmp_path)}: not used (edited" in text
    assert f"{path.relative_to(tmp_path)}: not used (edited" in report_page(tmp_path)
    assert "96.0" not in text
    named = ["--results", str(tmp_path), "--name", "mine", "--task", "voc07_svm"]
    for words in ([str(path)], *[named] * (folder == "records")):
        assert explain(words) == 2
        assert f"{path}: not a record that can be used (edited" in capsys.readouterr().err


def test_a_record_that_lacks_a_nested_entry_is_named_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, name in (("backbone", "arch"), ("protocol", "fields"), ("data", "counts")):
        results = tmp_path / part
        record(results / "records", 46.0)
        (path,) = results.rglob("*.json")
        content = json.loads(path.read_text())
        del (content[part]["set"] if part == "data" else content[part])[name]
        put(path.parent, path.name, content)
        said = f"{path.relative_to(results)}: not used (no {name} in its {part}"
        assert said in page(results, "overview.md")
        assert said in report_page(results)
        assert explain([str(path)]) == 2
        assert f"{path}: not a record that can be used (no {name}" in capsys.readouterr().err


PAGE = f"""# Title

Text.

## A block

{table(("method", "top_1 | %"), [["→ mine ¹²", "**71.2** ± 0.3"], ["*group*", "*3*"]])}

- note
"""


def test_a_table_becomes_a_tabular_with_booktabs() -> None:
    assert (
        latex_tables(PAGE)
        == r"""% A block
\begin{tabular}{lr}
\toprule
method & top\_1 | \% \\
\midrule
$\rightarrow$ mine $^{12}$ & \textbf{71.2} $\pm$ 0.3 \\
\textit{group} & \textit{3} \\
\bottomrule
\end{tabular}
"""
    )
    assert latex_tables("# no table\n") == ""


def test_pages_in_latex_follow_later_records(tmp_path: Path) -> None:
    record(tmp_path, 60.0)
    assert main(["--results", str(tmp_path), "--format", "latex"]) == 0
    record(tmp_path, 70.0)
    write_tables(tmp_path)
    text = (tmp_path / "tables" / "overview.tex").read_text()
    assert "70.0" in text
    assert "60.0" not in text
