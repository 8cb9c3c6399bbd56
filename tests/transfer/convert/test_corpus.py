"""Damaged files end as they should: refused with a reason, or loaded equal to the original."""

from pathlib import Path

import pytest

from tests.transfer.convert.corpus import read_corpus
from tests.transfer.convert.damage import KINDS

SOME = ["truncated, zip", "NaN or infinity", "hidden call", "object of an unknown class"]


@pytest.mark.parametrize(
    ("count", "kinds"), [(4, SOME), pytest.param(1000, list(KINDS), marks=pytest.mark.slow)]
)
def test_damaged_files_end_as_expected(count: int, kinds: list[str], tmp_path: Path) -> None:
    reads = read_corpus(seed=0, count=count, folder=tmp_path, kinds=kinds)
    assert {read.kind for read in reads} == set(kinds)
    assert [read for read in reads if not read.is_expected] == []
