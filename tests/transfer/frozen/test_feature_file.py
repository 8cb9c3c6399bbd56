"""A cache entry is correct or computed again, after any failure."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import transfer.frozen.extraction
import transfer.frozen.feature_cache
from pretrain.running.atomic_files import WriteError
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.frozen.extraction import EvalImages
from transfer.frozen.feature_cache import features_of_backbones
from transfer.frozen.feature_file import read_rows, unfinished_rows
from transfer.frozen.transforms import EvalTransform

TRANSFORM = EvalTransform(resize_px=32, crop_px=32)
NUM_IMAGES, ROWS_PER_PART = 10, 4
KILLED = 9
PWRITE, FDATASYNC = (os, "pwrite"), (os, "fdatasync")
WRITES = ((os, "posix_fallocate"), PWRITE, FDATASYNC, (os, "replace"))
STEPS = (*WRITES, (os, "open"), (os, "ftruncate"), (os, "unlink"), (os, "close"), (fcntl, "flock"))
"""All that changes a file of an entry."""
Step = Callable[..., Any]
Steps = tuple[tuple[Any, str], ...]
Work = Callable[[], list[Tensor]]


@pytest.fixture
def extract(
    small_backbone: Encoder, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Work:
    """Features of a few images, for two backbones in one pass.

    Their networks cost nothing.
    """
    images = open_split("dtd", small_data, "val").subset(range(NUM_IMAGES))
    pixels = torch.randint(256, (NUM_IMAGES, 3, 32, 32), dtype=torch.uint8)
    second = replace(
        small_backbone, sha256="other", input=replace(small_backbone.input, std=(1,) * 3)
    )
    folders = Folders(small_data, tmp_path / "cache", tmp_path / "work")
    patch = monkeypatch.setattr
    patch(transfer.frozen.feature_cache, "open_images", lambda *_: images)
    patch(EvalImages, "__getitem__", lambda _, index: pixels[index])
    patch(transfer.frozen.extraction, "frozen_network", lambda _: nn.Identity())
    patch(transfer.frozen.extraction, "forward", lambda _, pixels: pixels.flatten(1)[:, :512])
    patch(transfer.frozen.extraction, "IMAGES_PER_CHUNK", ROWS_PER_PART)
    patch(transfer.frozen.extraction, "IMAGES_PER_BATCH", 2)

    def work() -> list[Tensor]:
        both = features_of_backbones([small_backbone, second], "dtd", "val", TRANSFORM, folders)
        return [features.features.clone() for features in both]

    return work


@contextmanager
def before(step: int, steps: Steps, act: Step) -> Iterator[Iterator[int]]:
    """Call act(real step, its arguments) before the step of this number.

    Yield those to come.
    """
    numbers = count(1)

    def happens(real: Step, *words: Any) -> Any:
        if next(numbers) == step:
            act(real, *words)
        return real(*words)

    with pytest.MonkeyPatch.context() as patch:
        for module, name in steps:
            patch.setattr(module, name, partial(happens, getattr(module, name)))
        yield numbers


def killed_at(step: int, work: Work, steps: Steps, *, torn: bool = False) -> bool:
    """Run work in a child process that ends before a step.

    Return whether it reached that step. os._exit cleans nothing up, like kill -9. torn: it ends
    during a write.
    """

    def die(real: Step, *words: Any) -> None:
        if torn:
            real(words[0], words[1][: len(words[1]) // 2], words[2])
        os._exit(KILLED)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            torch.set_num_threads(1)  # as loaders do: threads do not survive a fork
            with before(step, steps, die):
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
def expected(extract: Work, cache: Path) -> list[Tensor]:
    """Features of an undisturbed pass; the cache is empty afterwards."""
    features = extract()
    empty(cache)
    return features


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(item, second) for item, second in zip(found, expected, strict=True))


@pytest.mark.slow
def test_a_kill_at_any_step_costs_nothing_but_time(
    extract: Work, expected: list[Tensor], cache: Path
) -> None:
    for step in count(1):
        empty(cache)
        if not killed_at(step, extract, STEPS):
            break
        assert same(extract(), expected), step
        assert not list(cache.glob("*.partial"))
    assert step > 40


def test_a_write_that_is_torn_by_a_kill_is_made_anew(
    extract: Work,
    expected: list[Tensor],
    cache: Path,
) -> None:
    for step in count(1):
        empty(cache)
        if not killed_at(step, extract, (PWRITE,), torn=True):
            break
        assert same(extract(), expected), step
    assert step > 10


def disturbed_at(step: int, work: Work, steps: Steps, disturb: Step) -> str | None:
    """Run the work, disturbed before one of its steps.

    The error's words, None without a step.
    """
    with before(step, steps, disturb) as numbers:
        try:
            work()
        except (WriteError, FileNotFoundError) as error:
            return str(error)
        return "" if next(numbers) > step else None


@pytest.mark.parametrize("suffix", ["npy", "partial"])
def test_a_deletion_at_any_step_ends_in_right_features_or_names_the_file(
    extract: Work, expected: list[Tensor], cache: Path, suffix: str
) -> None:
    def checked() -> list[Tensor]:
        result = extract()
        assert same(result, expected)
        return result

    def delete(*_: object) -> None:
        for path in cache.glob(f"*.{suffix}"):
            path.unlink()

    errors = 0
    for step in count(1):
        empty(cache)
        error = disturbed_at(step, checked, STEPS, delete)
        if error is None:
            break
        errors += bool(error)
        assert not error or f"{cache}/" in error
        assert same(extract(), expected), step
    assert step > 40
    assert errors


def test_a_full_disk_at_any_write_names_the_file_and_what_to_do(
    extract: Work, expected: list[Tensor], cache: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in count(1):
        empty(cache)
        output = disturbed_at(step, extract, WRITES, full)
        if output is None:
            break
        assert f"{cache.parent}/" in output
        assert "free some space" in output
        assert same(extract(), expected), step
    assert step > 25


def test_a_disk_that_takes_a_part_of_each_write_gets_the_rest(
    extract: Work, expected: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: real(file, content[:7000], at))
    assert same(extract(), expected)


@pytest.mark.parametrize("content", ["", '[4, 8, ""]', "{}"])
def test_damaged_counts_are_not_believed(
    extract: Work, expected: list[Tensor], cache: Path, content: str
) -> None:
    assert killed_at(6, extract, (FDATASYNC,))
    for path in cache.glob("*.rows"):
        path.write_text(content)
    for path in cache.glob("*.partial"):
        path.write_bytes(path.read_bytes()[:128].ljust(path.stat().st_size, b"\0"))
    assert same(extract(), expected)


def test_truncated_cache_entry_is_computed_again(
    extract: Work, expected: list[Tensor], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for length in (0, 5, 130, 9000):
        extract()
        for path in cache.glob("*.npy"):
            path.write_bytes(path.read_bytes()[:length])
        assert same(extract(), expected), length

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for module, name in (*WRITES, (os, "unlink"), (os, "open")):
        monkeypatch.setattr(module, name, refuse)
    assert same(extract(), expected)


def test_what_another_process_finishes_meanwhile_is_not_made_again(
    extract: Work,
    expected: list[Tensor],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    extract()
    path = min(cache.glob("*.npy"))
    finished = path.rename(path.with_suffix(".kept"))
    with ExitStack() as holder:
        holder.enter_context(unfinished_rows(path, (NUM_IMAGES, 512)))

        def sleep(_: float) -> None:  # the other process is done in this moment
            finished.rename(path)
            holder.close()

        monkeypatch.setattr(time, "sleep", sleep)
        monkeypatch.delattr(transfer.frozen.extraction, "forward")
        assert same(extract(), expected)
    assert f"waiting for another process that extracts: {path}" in capsys.readouterr().err


def test_finished_rows_are_not_written_again(tmp_path: Path) -> None:
    for completed, rows in ((4, 1), (6, 2), (8, 3)):
        with unfinished_rows(tmp_path / "rows.npy", (8, 2)) as entry:
            assert entry is not None
            entry.write(0, np.full((completed, 2), rows, np.float32))
            entry.mark(completed)
            if completed == 8:
                entry.publish()
    result = read_rows(tmp_path / "rows.npy", (8, 2))
    assert result is not None
    assert result[:, 0].tolist() == [1] * 4 + [2] * 2 + [3] * 2


def test_discarded_rows_are_made_again(tmp_path: Path) -> None:
    for _ in range(2):
        with unfinished_rows(tmp_path / "rows.npy", (8, 2)) as entry:
            assert entry is not None
            assert entry.done == 0
            entry.mark(4)
            entry.discard()
