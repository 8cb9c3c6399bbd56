"""A cache entry is right or begun anew, whatever is killed, deleted or full at any step."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import transfer.datasets.unchanged
import transfer.frozen.extraction
import transfer.frozen.feature_file
import transfer.frozen.features
from pretrain.running.atomic_files import WriteError
from transfer.backbone import Backbone
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import Folders
from transfer.datasets.unchanged import working_on
from transfer.frozen.extraction import EvalImages
from transfer.frozen.feature_file import UnfinishedRows, read_rows, unfinished_rows
from transfer.frozen.features import frozen_features
from transfer.frozen.transforms import EvalTransform

TRANSFORM = EvalTransform(resize_px=32, crop_px=32)
NUM_IMAGES, ROWS_PER_PART = 10, 4
KILLED = 9
WRITE, FDATASYNC = (UnfinishedRows, "write"), (os, "fdatasync")
WRITES = ((os, "posix_fallocate"), WRITE, FDATASYNC, (os, "fsync"), (Path, "replace"))
STEPS = (*WRITES, (Path, "open"), (Path, "unlink"), (transfer.frozen.feature_file, "open_memmap"))
"""All that changes a file of an entry."""
Step = Callable[..., Any]
Steps = tuple[tuple[Any, str], ...]
Work = Callable[[], Tensor]


@pytest.fixture
def extract(
    small_backbone: Backbone, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Work:
    """Features of a few images; their network costs nothing."""
    images = open_split("dtd", small_data, "val").subset(range(NUM_IMAGES))
    pixels = torch.randint(256, (NUM_IMAGES, 3, 32, 32), dtype=torch.uint8)
    folders = Folders(small_data, tmp_path / "cache", tmp_path / "work")
    patch = monkeypatch.setattr
    patch(transfer.frozen.features, "open_images", lambda *_: images)
    patch(EvalImages, "__getitem__", lambda _, index: pixels[index])
    patch(transfer.frozen.extraction, "frozen_network", lambda _: nn.Linear(1, 1))
    patch(transfer.frozen.extraction, "forward", lambda _, pixels: pixels.flatten(1)[:, :512])
    patch(transfer.frozen.extraction, "IMAGES_PER_PART", ROWS_PER_PART)
    patch(transfer.frozen.extraction, "IMAGES_PER_BATCH", 2)

    def work() -> Tensor:
        with working_on((), ""):  # the costs of earlier comparisons are not known
            found = frozen_features(small_backbone, "dtd", "val", TRANSFORM, folders)
        return found.features.clone()

    return work


@contextmanager
def before_each(steps: Steps, happens: Step) -> Iterator[None]:
    """Call happens(real step, its arguments) in place of each step."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in steps:
            real = getattr(owner, name)
            patch.setattr(
                owner, name, lambda *words, real=real, **named: happens(real, *words, **named)
            )
        yield


def killed_at(step: int, work: Work, steps: Steps, *, torn: bool = False) -> bool:
    """Run the work in a child that is gone before one of the steps; return whether it came to it.

    Nothing is cleaned up behind os._exit, as behind kill -9. torn: it is gone amid a write.
    """
    numbers = count(1)

    def happens(real: Step, *words: Any, **named: Any) -> Any:
        if next(numbers) == step:
            if torn:
                rows, start, values = words
                real(rows, start, values[: len(values) // 2])
                rows.file.flush()
            os._exit(KILLED)
        return real(*words, **named)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # as loaders do: threads do not survive a fork
            with before_each(steps, happens):
                work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, KILLED)
    return status == KILLED


def empty(folder: Path) -> None:
    for path in folder.iterdir() if folder.exists() else ():
        path.unlink()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "features"


@pytest.fixture
def expected(extract: Work, cache: Path) -> Tensor:
    """Features of an undisturbed pass; the cache is empty afterwards."""
    features = extract()
    empty(cache)
    return features


def test_a_kill_at_any_step_costs_nothing_but_time(
    extract: Work, expected: Tensor, cache: Path
) -> None:
    for step in count(1):
        empty(cache)
        if not killed_at(step, extract, STEPS):
            break
        assert torch.equal(extract(), expected), step
        assert not list(cache.glob("*.partial"))
    assert step > 20


@pytest.mark.parametrize("first_comparison_s", [3600, 0])
def test_a_write_that_is_torn_by_a_kill_is_made_anew(
    extract: Work,
    expected: Tensor,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    first_comparison_s: float,
) -> None:
    monkeypatch.setattr(transfer.datasets.unchanged, "FIRST_S", first_comparison_s)
    for step in count(1):
        empty(cache)
        if not killed_at(step, extract, (WRITE,), torn=True):
            break
        assert torch.equal(extract(), expected), step
    assert step > 4


def disturbed_at(step: int, work: Work, steps: Steps, disturb: Callable[[], None]) -> str | None:
    """Run the work, disturbed before one of its steps; the error's words, None without a step."""
    numbers = count(1)

    def happens(real: Step, *words: Any, **named: Any) -> Any:
        if next(numbers) == step:
            disturb()
        return real(*words, **named)

    try:
        with before_each(steps, happens):
            work()
    except (WriteError, OSError) as error:
        return str(error)
    return "" if next(numbers) > step else None


@pytest.mark.parametrize("suffix", ["npy", "partial"])
def test_a_deletion_at_any_step_ends_in_right_features_or_names_the_file(
    extract: Work, expected: Tensor, cache: Path, suffix: str
) -> None:
    def checked() -> Tensor:
        found = extract()
        assert torch.equal(found, expected)
        return found

    def delete() -> None:
        for path in cache.glob(f"*.{suffix}"):
            os.unlink(path)  # noqa: PTH108 - Path.unlink is one of the steps

    for step in count(1):
        empty(cache)
        told = disturbed_at(step, checked, STEPS, delete)
        if told is None:
            break
        assert not told or (f"{cache}/" in told and "the same command" in told)
        assert torch.equal(extract(), expected), step
    assert step > 20


def test_a_full_disk_at_any_write_names_the_file_and_what_to_do(
    extract: Work, expected: Tensor, cache: Path
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in count(1):
        empty(cache)
        told = disturbed_at(step, extract, tuple(one for one in WRITES if one != WRITE), full)
        if told is None:
            break
        assert f"{cache.parent}/" in told
        assert "No space left on device); free some space there" in told
        assert torch.equal(extract(), expected), step
    assert step > 10


@pytest.mark.parametrize("content", ["", "4", "[4, 8", "{}"])
def test_damaged_counts_are_not_believed(
    extract: Work, expected: Tensor, cache: Path, content: str
) -> None:
    assert killed_at(3, extract, (FDATASYNC,))
    assert [json.loads(path.read_text())[1] for path in cache.glob("*.rows")] == [8]
    for path in cache.glob("*.rows"):
        path.write_text(content)
    for path in cache.glob("*.partial"):
        path.write_bytes(path.read_bytes()[:128].ljust(path.stat().st_size, b"\0"))
    assert torch.equal(extract(), expected)


def test_a_torn_entry_is_made_anew(extract: Work, expected: Tensor, cache: Path) -> None:
    for length in (0, 5, 130, 9000):
        extract()
        for path in cache.glob("*.npy"):
            path.write_bytes(path.read_bytes()[:length])
        assert torch.equal(extract(), expected), length


def test_a_read_only_cache_is_read(extract: Work, expected: Tensor, cache: Path) -> None:
    extract()

    def happens(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with before_each((*WRITES, (Path, "unlink")), happens):
        assert torch.equal(extract(), expected)


def test_what_another_process_finishes_meanwhile_is_not_made_again(
    extract: Work, expected: Tensor, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract()
    path = min(cache.glob("*.npy"))
    finished = path.rename(path.with_suffix(".kept"))
    other = unfinished_rows(path, (NUM_IMAGES, 512))
    other.__enter__()

    def sleep(_: float) -> None:  # the other process is done in this moment
        finished.rename(path)
        other.__exit__(None, None, None)

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.delattr(transfer.frozen.extraction, "forward")
    assert torch.equal(extract(), expected)


def test_unproven_rows_count_for_their_state_and_proven_ones_for_all(tmp_path: Path) -> None:
    def found(state: str, done: int = 0, *, publish: bool = False, rows: float = 0) -> int:
        with working_on((), state), unfinished_rows(tmp_path / "rows.npy", (8, 2)) as entry:
            assert entry is not None
            before = entry.done
            if done:
                entry.write(0, np.full((done, 2), rows, np.float32))
                entry.mark(done)
            if publish:
                entry.publish()
            return before

    assert [found("a", 4, rows=1), found("b"), found("a", 6, publish=True, rows=2)] == [0, 0, 4]
    assert [found("b"), found("b", 8, rows=3), found("c"), found("a")] == [6, 6, 6, 6]
    found("b", publish=True)
    rows = read_rows(tmp_path / "rows.npy", (8, 2))
    assert rows is not None
    assert rows[:, 0].tolist() == [1] * 4 + [2] * 2 + [3] * 2  # no finished row is written again
