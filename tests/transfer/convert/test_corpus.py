"""Damaged files are refused or load as before; bombs are refused in half a minute and 2 GB."""

from pathlib import Path

import pytest
import torch

from tests.transfer.convert.bombs import FILES, SPARSE
from tests.transfer.convert.corpus import read_corpus, read_guarded
from tests.transfer.convert.damage import KINDS
from transfer.__main__ import main

PRINTED = (
    "doubled lists",
    "doubled tuples",
    "doubled lists in our own",
    "doubled lists as a field",
)
"""Bombs that would only go off in a message; the walk to the end of the budget takes seconds."""
QUICK = sorted(
    name
    for name, content in FILES.items()
    if len(content) < 300_000 and not name.rpartition(",")[0].startswith(PRINTED)
)
SLOW_SPARSE = SPARSE.keys() - {"zeros", "a line of 6 GB", "a zip without an end"}


def test_small_bombs_are_refused_within_the_budget(tmp_path: Path) -> None:
    for name in QUICK[::12]:  # the slow test tries each
        (tmp_path / "file").write_bytes(FILES[name])
        outcome = read_guarded(tmp_path / "file")
        assert outcome.end == "refused", (name, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_each_bomb_is_refused_within_the_budget(part: int, tmp_path: Path) -> None:
    ends = {}
    for name in sorted(FILES)[part::8]:
        (tmp_path / "file").write_bytes(FILES[name])
        ends[name] = read_guarded(tmp_path / "file")
    assert [(name, end) for name, end in ends.items() if end.end != "refused"] == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW_SPARSE else n for n in SPARSE],
)
def test_sparse_files_are_refused_without_being_read(name: str, tmp_path: Path) -> None:
    SPARSE[name](tmp_path / "file")
    outcome = read_guarded(tmp_path / "file")
    assert outcome.end == "refused", outcome


def test_a_bomb_ends_the_command_line_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(FILES["bytearray of 8e9 by REDUCE, pickle"])
    assert main(["inspect", str(tmp_path / "file")]) == 2
    assert "more memory" in capsys.readouterr().err


@pytest.mark.slow
def test_the_list_of_imagenet_stays_within_the_memory(tmp_path: Path) -> None:
    images = [(f"/data/train/n{i:08d}/n{i:08d}_{i}.JPEG", i % 1000) for i in range(1_281_167)]
    torch.save({"weight": torch.ones(2), "samples": images}, tmp_path / "file")
    outcome = read_guarded(tmp_path / "file")
    # no ResNet is in it; on a busy machine its hundred megabytes may take more than the processor
    # time, whose limit then ends the process
    assert outcome.end in ("refused", "above budget"), outcome
    assert "MemoryError" not in outcome.message


SOME = ["truncated, zip", "NaN or infinity", "hidden call", "object of an unknown class"]


@pytest.mark.parametrize(
    ("count", "kinds"), [(4, SOME), pytest.param(1000, list(KINDS), marks=pytest.mark.slow)]
)
def test_damaged_files_end_as_expected(count: int, kinds: list[str], tmp_path: Path) -> None:
    reads = read_corpus(seed=0, count=count, folder=tmp_path, kinds=kinds)
    assert {read.kind for read in reads} == set(kinds)
    assert [read for read in reads if not read.is_expected] == []
