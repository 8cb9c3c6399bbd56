"""Fixtures of several packages: small data, small backbones, and skips with reasons."""

import errno
import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from pretrain.running import stop
from pretrain.running.console import QUIET
from transfer.cells.request import Settings
from transfer.datasets.catalog import dataset_info
from transfer.datasets.expected import SMALL_DATA
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import Encoder, InputFormat, random_backbone


def pytest_configure() -> None:
    """Let SIGHUP stop runs under test, even if pytest runs under nohup."""
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # a child has the default again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that this machine cannot run, with a reason."""
    no_gpu = pytest.mark.skip(reason="needs a CUDA device; a CPU twin checks the same fact")
    no_data = pytest.mark.skip(reason="needs real data: set DATASETS to their folder")
    no_detectron2 = pytest.mark.skip(reason="needs detectron2: its stored answers are checked")
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
        if item.get_closest_marker("detectron2") and find_spec("detectron2") is None:
            item.add_marker(no_detectron2)
        if item.get_closest_marker("data") and "DATASETS" not in os.environ:
            item.add_marker(no_data)


@pytest.fixture(scope="session")
def small_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small read-only versions of all datasets, shared by all test processes."""
    ours = tmp_path_factory.getbasetemp()
    # a run that a test has started is not a worker, although it inherits a worker's environment
    run = ours.parent if hasattr(request.config, "workerinput") else ours
    with (run / "small-data.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (run / "small-data").exists():
            generate(run / "unfinished")
            (run / "unfinished").rename(run / "small-data")
    return run / "small-data"


@pytest.fixture(autouse=True)
def nothing_asked() -> Iterator[None]:
    """Reset requested stops and --quiet after each test of this process."""
    yield
    stop._received_signals.clear()
    os.environ.pop(QUIET, None)


@pytest.fixture
def only(small_data: Path, tmp_path: Path) -> Callable[..., Path]:
    """Make data folders that contain only some of the small datasets."""

    def link(*keys: str) -> Path:
        data = tmp_path / "only"
        for key in keys:
            folder = dataset_info(key).folder
            (data / folder).parent.mkdir(parents=True, exist_ok=True)
            (data / folder).symlink_to(small_data / folder)
        shutil.copy(small_data / SMALL_DATA, data)
        return data

    return link


@pytest.fixture(scope="session")
def small_backbone() -> Encoder:
    """A random ResNet-18 for 32 px images."""
    form = InputFormat(size_px=32)
    return random_backbone(arch="resnet18", stem="imagenet", seed=0, input=form)


@pytest.fixture
def settings(small_data: Path, tmp_path: Path) -> Settings:
    """Smoke schedule on the small data, with all outputs in tmp_path."""
    return Settings(
        data=small_data,
        results=tmp_path / "results",
        runs=tmp_path / "runs",
        schedule="smoke",
    )


@pytest.fixture
def checkpoint(small_backbone: Encoder, tmp_path: Path) -> Path:
    """The small backbone as a backbone file, "mine.pth"."""
    return own_file(small_backbone, {}, tmp_path / "mine.pth")


@pytest.fixture
def other_checkpoint(small_backbone: Encoder, tmp_path: Path) -> Path:
    """Other weights of the same network, "other.pth"."""
    second = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=small_backbone.input)
    return own_file(second, {}, tmp_path / "other.pth")


@pytest.fixture
def four_heads(tmp_path: Path) -> Path:
    """A random LooC++ network for 32 px images as backbone file, "loocpp.pth"."""
    backbone = random_backbone(
        arch="resnet18-heads4", stem="imagenet", seed=0, input=InputFormat(size_px=32)
    )
    designated = ["color", "rotation", "texture"]
    made_by: dict[str, object] = {"settings": {"config.designated": designated}}
    return own_file(backbone, made_by, tmp_path / "loocpp.pth")


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let all writes to paths that contain a text fail: disk full."""
    sync = os.fsync

    def fill(text: str) -> None:
        def full(descriptor: int) -> None:
            if text in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", full)

    return fill


def own_file(backbone: Encoder, made_by: dict[str, object], path: Path) -> Path:
    """A backbone as the pre-training package exports it."""
    form = backbone.input
    content = {
        "format": "ssl-backbone/1",
        "arch": backbone.arch,
        "stem": backbone.stem,
        "state_dict": backbone.state_dict,
        "input": {
            "mean": list(form.mean),
            "std": list(form.std),
            "size": form.size_px,
            "channels": "RGB",
        },
        "made_by": made_by,
    }
    torch.save(content, path)
    return path
