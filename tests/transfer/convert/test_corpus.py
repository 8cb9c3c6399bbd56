"""Damaged files end as they should: refused with a reason, or loaded equal to the original."""

from pathlib import Path

import pytest

from tests.transfer.convert.corpus import Read, read_corpus
from tests.transfer.convert.damage import KINDS, base_weights, whole_file
from transfer.backbone import load_backbone
from transfer.convert.architectures import is_optional


def unexpected(reads: list[Read]) -> list[Read]:
    """Return the files that ended otherwise than they should."""
    return [read for read in reads if not read.is_expected]


def test_files_of_some_kinds_end_as_expected(tmp_path: Path) -> None:
    kinds = ("truncated, zip", "NaN or infinity", "hidden call", "object of an unknown class")
    reads = read_corpus(seed=2, count=len(kinds), folder=tmp_path, kinds=kinds)
    assert [read.kind for read in reads] == list(kinds)
    assert not unexpected(reads)


@pytest.mark.slow
def test_two_files_of_each_kind_end_as_expected(tmp_path: Path) -> None:
    reads = read_corpus(seed=1, count=2 * len(KINDS), folder=tmp_path)
    assert {read.kind for read in reads} == KINDS.keys()
    assert not unexpected(reads)


@pytest.mark.slow
def test_a_thousand_files_end_as_expected(tmp_path: Path) -> None:
    assert not unexpected(read_corpus(seed=0, count=1000, folder=tmp_path))


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_the_undamaged_file_loads_equal(form: str, tmp_path: Path) -> None:
    (tmp_path / "file.pth").write_bytes(whole_file(form))
    state_dict = load_backbone(tmp_path / "file.pth").state_dict
    for name, tensor in base_weights().items():
        assert is_optional(name) or state_dict[name].equal(tensor.float())
