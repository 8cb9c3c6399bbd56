"""Each number of a task with two readings stands beside the rows of its own reading."""

from pathlib import Path

import pytest

from tests.synthetic_records import blocks, page, record

MOCO = "MoCo (He et al., 2020)"


@pytest.fixture
def text(tmp_path: Path) -> str:
    """CO2 Table 2 with both readings of three backbones, on hosts v1, v2 and of unknown make."""
    recipes = {"one": "co2/in1k-r50-v1", "two": "co2/in1k-r50-v2", "foreign": ""}
    for digest, (name, recipe) in enumerate(recipes.items()):
        made_by = {"method": "co2", "recipe": recipe} if recipe else {}
        for protocol in ("co2-2021/1", "co2-2021-v1/1"):
            cell = {"task": "in1k_semi_1pct", "metric": "top5", "protocol": protocol}
            record(tmp_path, 60.0, **cell, backbone=name, made_by=made_by, sha256=str(digest) * 64)
    return page(tmp_path, "co2_table2.md")


def test_new_rows_stand_beside_the_papers_of_the_same_reading(text: str) -> None:
    beside, of_v1, *apart = (list(table) for table in blocks(text)[:4])
    assert beside[-2:] == ["→ foreign", "→ two"]
    told = "(protocol co2-2021-v1)"
    assert of_v1 == [f"{MOCO} {told}", f"{MOCO} + CO2 {told}", "→ foreign", "→ one"]
    assert apart == [["→ one"], ["→ two"]]
