"""Reads are repeated after network disk errors.

Such errors are not reported as bad files.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import transfer.__main__
from benchmarks import run_all
from pretrain.__main__ import main
from pretrain.pixels.decoding import image_size
from pretrain.running import reading, stop
from pretrain.running.reading import ReadError, read_bytes, read_text
from tests.pretrain.conftest import image_folder
from transfer.datasets.images import read_pixels

__all__ = ["image_folder"]
Break = Callable[..., list[Path]]


@pytest.fixture
def break_disk(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Let reads of a suffix fail several times; return the reads.

    first: number of the first read that fails, from 1.
    """
    monkeypatch.setattr(reading, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(reading, "PATIENCE_S", 0.01)

    def start(suffix: str, number: int, times: int, first: int = 1) -> list[Path]:
        read, opened, reads = Path.read_bytes, Image.open, list[Path]()

        def fail(path: Path) -> None:
            if path.suffix == suffix:
                reads.append(path)
                if first <= len(reads) < first + times:
                    raise OSError(number, os.strerror(number), str(path))

        def read_bytes(path: Path) -> bytes:
            fail(path)
            return read(path)

        def open_image(file: object) -> Image.Image:
            if isinstance(file, str | Path):
                fail(Path(file))
            return opened(file)  # type: ignore[arg-type]

        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        monkeypatch.setattr(Image, "open", open_image)
        return reads

    return start


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ESHUTDOWN])
def test_error_that_passes_is_one_line(
    tmp_path: Path, break_disk: Break, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    (tmp_path / "list.txt").write_text("a\nb")
    reads = break_disk(".txt", number, 2)
    assert read_text(tmp_path / "list.txt") == "a\nb"
    assert len(reads) == 3
    assert capsys.readouterr().err.count(f"{os.strerror(number)}; reading it again\n") == 1


def test_missing_file_is_not_read_again(tmp_path: Path, break_disk: Break) -> None:
    reads = break_disk(".txt", errno.EIO, 0)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "absent.txt")
    assert len(reads) == 1


def test_stop_ends_the_repeats(tmp_path: Path, break_disk: Break) -> None:
    reads = break_disk(".txt", errno.EIO, 10**9)
    stop._received_signals.append(15)
    with pytest.raises(ReadError, match=r"a.txt: cannot be read \(Input/output error\)"):
        read_bytes(tmp_path / "a.txt")
    assert len(reads) == 1


def test_image_on_a_broken_disk_is_not_a_broken_image(
    image_folder: Path, break_disk: Break
) -> None:
    break_disk(".png", errno.EIO, 10**9)
    image = min(image_folder.rglob("*.png"))
    for read in (lambda: image_size(str(image)), lambda: read_pixels(image)):
        with pytest.raises(ReadError, match="cannot be read"):
            read()


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["0", "1"])
@pytest.mark.parametrize(
    ("first", "times", "status"),
    [(1, 2, 0), (21, 2, 0), (1, 10**9, 75), (21, 10**9, 75)],
    ids=["once when listed", "once in training", "when listed", "in training"],
)
def test_run_on_a_broken_disk_can_be_started_again(
    image_folder: Path, break_disk: Break, memory: str, first: int, times: int, status: int
) -> None:
    args = ["moco/smoke", "--data", str(image_folder), "--out", str(image_folder.parent / "run")]
    args += ["--memory-gb", memory, "--workers", "0", "--steps", "1", "--device", "cpu"]
    break_disk(".png", errno.EIO, times, first)  # the first 20 reads are of headers
    assert main(args) == status


@pytest.mark.slow
@pytest.mark.parametrize("command", [transfer.__main__.main, run_all.main])
def test_evaluation_on_a_broken_disk_can_be_started_again(
    only: Callable[..., Path],
    checkpoint: Path,
    tmp_path: Path,
    break_disk: Break,
    capsys: pytest.CaptureFixture[str],
    command: Callable[[list[str]], int],
) -> None:
    args = ["--ckpt", str(checkpoint), "--data", str(only("cars")), "--schedule", "smoke"]
    args += ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    args = ["--tasks", "cars_knn", *args] if command is run_all.main else ["cars_knn", *args]
    break_disk(".jpg", errno.ESTALE, 10**9)
    assert command(args) == 75
    assert "cannot be read (Stale file handle)" in capsys.readouterr().err
