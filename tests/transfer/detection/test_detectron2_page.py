"""The detectron2 page names the pinned commit and all recipe fields."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from transfer.detection.detectron2_engine import get_cfg
from transfer.detection.engines import SOURCE
from transfer.detection.recipe import DetectorRecipe

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "detectron2.md").read_text()
ROWS = re.findall(r"^\| (`.*) \| (.*) \|$", PAGE.partition("## From the recipe")[2], re.MULTILINE)


def test_page_has_the_pinned_commit_and_every_field() -> None:
    assert f"pip install --no-build-isolation '{SOURCE}'" in PAGE
    named = [name for row, _ in ROWS for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(field.name for field in fields(DetectorRecipe))


@pytest.mark.detectron2
def test_page_names_existing_keys() -> None:
    keys = re.findall(r"`([A-Z]\w+(?:\.\w+)+)`", " ".join(text for _, text in ROWS))
    assert len(keys) > 50
    for key in keys:
        node = get_cfg()
        for part in key.split("."):
            node = node[part]
