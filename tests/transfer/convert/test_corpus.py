"""Damaged files are refused or load as before; bombs are refused in half a minute and 2 GB."""

from pathlib import Path

import pytest
import torch

from tests.transfer.convert.bombs import FILES, SPARSE
from tests.transfer.convert.corpus import read_corpus, read_guarded
from tests.transfer.convert.damage import KINDS

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


@pytest.mark.parametrize(
    "names",
    [
        QUICK[::12],
        *(pytest.param(sorted(FILES)[part::8], marks=pytest.mark.slow) for part in range(8)),
    ],
)
def test_each_bomb_is_refused_within_the_budget(names: list[str], file: Path) -> None:
    ends = {}
    for name in names:
        file.write_bytes(FILES[name])
        ends[name] = read_guarded(file)
    assert [(name, end) for name, end in ends.items() if end.end != "refused"] == []


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW_SPARSE else n for n in SPARSE],
)
def test_sparse_files_are_refused_without_being_read(name: str, file: Path) -> None:
    SPARSE[name](file)
    outcome = read_guarded(file)
    assert outcome.end == "refused", outcome


@pytest.mark.slow
def test_the_list_of_imagenet_stays_within_the_memory(file: Path) -> None:
    images = [(f"/data/train/n{i:08d}/n{i:08d}_{i}.JPEG", i % 1000) for i in range(1_281_167)]
    torch.save({"weight": torch.ones(2), "samples": images}, file)
    outcome = read_guarded(file)
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
