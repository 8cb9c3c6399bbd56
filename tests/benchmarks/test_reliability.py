"""The page of reliability is made of the sections that commands wrote, and of nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.reliability import Row, Section, write_section

FILES = Section(
    name="files",
    title="Damaged files",
    text="A file survives if it is refused or loads unchanged.",
    rows=(
        Row(kind="truncation", tried=30, survived=30, counts={"refused": 29, "loaded": 1}),
        Row(
            kind="flip | legacy",
            tried=20,
            survived=18,
            counts={"refused": 18, "loaded": 0},
            not_survived="the format has no checksum",
        ),
    ),
    seed=3,
    command="python -m tests.files --seed 3",
    commit="0123456789",
)


def test_the_page_holds_every_row_with_its_counts_and_the_sum(tmp_path: Path) -> None:
    lines = write_section(tmp_path, FILES).read_text().splitlines()
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines if line[:1] == "|"]
    assert cells[0][1:5] == ["tried", "survived", "refused", "loaded"]
    assert cells[2][1:5] == ["30", "30", "29", "1"]
    assert cells[3][1:5] == ["20", "18", "18", "0"]
    assert cells[4][1:5] == ["**50**", "**48**", "**47**", "**1**"]
    assert "flip \\| legacy" in cells[3][0]
    assert "the format has no checksum" in cells[3][5]


def test_a_section_says_how_to_make_it_again(tmp_path: Path) -> None:
    page = write_section(tmp_path, FILES).read_text()
    assert "`python -m tests.files --seed 3`" in page
    assert "Seed 3" in page
    assert "commit 0123456789" in page


def test_sections_of_other_commands_stay_and_the_same_section_is_replaced(tmp_path: Path) -> None:
    write_section(tmp_path, FILES)
    write_section(tmp_path, replace(FILES, name="kills", title="Kills"))
    page = write_section(tmp_path, replace(FILES, title="Damaged files again"))
    assert page == tmp_path / "reliability.md"
    headings = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert headings == ["## Damaged files again", "## Kills"]


def test_the_same_sections_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    kills = replace(FILES, name="kills", title="Kills")
    pages = []
    for folder, sections in (("a", (FILES, kills)), ("b", (kills, FILES))):
        for section in sections:
            page = write_section(tmp_path / folder, section)
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]


def test_rows_that_count_different_things_are_refused(tmp_path: Path) -> None:
    rows = (FILES.rows[0], replace(FILES.rows[1], counts={"refused": 18}))
    with pytest.raises(ValueError, match="counts"):
        write_section(tmp_path, replace(FILES, rows=rows))


def test_more_survivors_than_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        Row(kind="flip", tried=2, survived=3)


def test_a_foreign_file_among_the_sections_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "reliability").mkdir()
    (tmp_path / "reliability" / "torn.json").write_text(json.dumps({"name": "torn"})[:-4])
    with pytest.raises(ValueError, match=r"torn\.json"):
        write_section(tmp_path, FILES)
