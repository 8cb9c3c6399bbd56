"""Different probes on one stream of crops equal separate trainings."""

import errno
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import transfer.frozen.linear_heads
import transfer.frozen.running_probe
from pretrain.running import atomic_files, stop
from pretrain.running.atomic_files import write_whole
from pretrain.running.errors import NotFiniteError
from pretrain.running.host_memory import image_memory
from pretrain.running.lock import wait_for_lock
from transfer.datasets.catalog import open_split
from transfer.datasets.images import Images
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads
from transfer.frozen.feature_cache import Features, Predictions
from transfer.frozen.linear_heads import Pass, train_and_score, train_passes
from transfer.frozen.probe_training import ProbeTraining

SMALL = ProbeTraining(learning_rates=(1.0, 0.1), epochs=2, batch_size=4, crop_px=32)
LARGE = ProbeTraining(
    learning_rates=(0.4,), epochs=3, batch_size=16, crop_px=32, optimizer="lars", weight_std=0.1
)
LONG = ProbeTraining(learning_rates=(1.0,), epochs=4, batch_size=4, crop_px=32, decays=("step",))
ALL = (SMALL, LARGE, LONG)


@pytest.fixture(scope="module")
def images(small_data: Path) -> Images:
    """Twenty photographs: a batch of sixteen spans two passes over them."""
    return open_split("cars", small_data, "train").subset(range(20))


SIZES: list[int] = []
"""Sizes of the forward passes of a test."""


@pytest.fixture(scope="module", autouse=True)
def pixel_sums() -> Iterator[None]:
    """Use sums of six pixels as features, in small chunks.

    Separate probes then have equal chunks.
    """

    def add_pixels(network: nn.Module, pixels: Tensor) -> Tensor:
        SIZES.append(len(pixels))
        return pixels.reshape(len(pixels), 512, -1).sum(dim=2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer.frozen.linear_heads, "FORWARD_IMAGES", 4)
        patch.setattr(transfer.frozen.linear_heads, "forward", add_pixels)
        yield


@pytest.fixture(autouse=True)
def no_passes_yet() -> None:
    SIZES.clear()


Train = Callable[..., Heads]


@pytest.fixture(scope="module")
def train(small_backbone: Encoder, images: Images) -> Train:
    """Return a function that trains a probe with others on its stream."""

    def trained(
        item: ProbeTraining, folder: Path, together: tuple[ProbeTraining, ...] = ALL
    ) -> Heads:
        others = peers(item, together)
        return Pass(small_backbone, images, item, 0, folder, peers=others).run()

    return trained


def peers(
    ours: ProbeTraining, together: tuple[ProbeTraining, ...] = ALL
) -> tuple[ProbeTraining, ...]:
    return tuple(item for item in together if item != ours)


def equal(item: Heads, other: Heads) -> bool:
    return torch.equal(item.weight, other.weight) and torch.equal(item.bias, other.bias)


@pytest.fixture(scope="module")
def alone(train: Train, tmp_path_factory: pytest.TempPathFactory) -> list[Heads]:
    """The heads of each probe by itself."""
    folder = tmp_path_factory.mktemp("alone")
    return [train(item, folder, ()) for item in ALL]


def test_probes_of_one_stream_equal_separate_ones(
    train: Train, tmp_path: Path, alone: list[Heads]
) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        SIZES.clear()
        for index in order:
            assert equal(train(ALL[index], tmp_path / str(order)), alone[index])
        # the longest needs 80 images; a call that goes on from 60 repeats an incomplete batch
        assert 80 <= sum(SIZES) <= 80 + 2 * (LARGE.batch_size - 4)


def test_repeatedly_stopped_stream_gives_equal_heads(
    train: Train, tmp_path: Path, alone: list[Heads], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "_received_signals", [15])
    # a probe of larger batches saves whole batches: let it have one
    calls = count(1)
    each = LARGE.batch_size // 4 + 1
    monkeypatch.setattr(stop, "is_requested", lambda: next(calls) % each == 0)
    stops = 0
    for index in (2, 0, 1):
        result = None
        while result is None:
            try:
                with image_memory(0):  # decoding to keep would be stopped, too
                    result = train(ALL[index], tmp_path)
            except stop.Stopped:
                stops += 1
        assert equal(result, alone[index])
    assert stops >= 3


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_full_disk_at_any_save_costs_no_second_pass(
    train: Train,
    tmp_path: Path,
    alone: list[Heads],
    monkeypatch: pytest.MonkeyPatch,
    writes: int,
) -> None:
    monkeypatch.setattr(transfer.frozen.linear_heads, "SAVE_EVERY_S", 0)
    remaining = iter(range(writes - 1))

    def write(path: Path, content: bytes, option: str) -> None:
        if next(remaining, None) is None:
            raise OSError(errno.ENOSPC, "no space left")
        write_whole(path, content, option)

    with monkeypatch.context() as full:
        full.setattr(atomic_files, "write_whole", write)
        with pytest.raises(OSError, match="no space left"):
            train(SMALL, tmp_path)
    assert all(equal(train(item, tmp_path), alone[index]) for index, item in enumerate(ALL))
    # one chunk and the incomplete batches of LARGE are read again, at most twice
    assert 80 <= sum(SIZES) <= 80 + 2 * LARGE.batch_size


def test_one_that_lags_behind_does_not_delay_another(train: Train, tmp_path: Path) -> None:
    train(SMALL, tmp_path, (LONG,))
    SIZES.clear()
    train(LONG, tmp_path, (LARGE,))  # LARGE has no state
    assert sum(SIZES) == 40


def test_diverged_probe_does_not_end_the_others(
    train: Train,
    tmp_path: Path,
    alone: list[Heads],
    capsys: pytest.CaptureFixture[str],
) -> None:
    wild = ProbeTraining(learning_rates=(float("inf"),), epochs=1, batch_size=4, crop_px=32)
    assert equal(train(SMALL, tmp_path / "first", (wild,)), alone[0])
    assert "learning rates (inf,)" in capsys.readouterr().err
    for folder in ("first", "second"):
        with pytest.raises(NotFiniteError):
            train(wild, tmp_path / folder, (SMALL,))
    SIZES.clear()
    assert equal(train(SMALL, tmp_path / "second", ()), alone[0])
    assert sum(SIZES) == 40 - 16  # its fifth batch ends the other before SMALL gets it


@pytest.fixture(scope="module")
def backbones(small_backbone: Encoder) -> list[Encoder]:
    """Two backbones; another normalization gives other sums of pixels."""
    form = replace(small_backbone.input, std=(0.5, 0.6, 0.7))
    return [small_backbone, replace(small_backbone, sha256="another", input=form)]


@pytest.mark.parametrize("ahead", [None, 0, 1])
def test_backbones_of_one_stream_equal_separate_ones(
    backbones: list[Encoder], images: Images, tmp_path: Path, ahead: int | None
) -> None:
    """Also if one of them has trained for a while."""

    def passes(folder: Path) -> list[Pass]:
        rates = (SMALL, replace(SMALL, learning_rates=(0.3,)))
        return [
            Pass(backbone, images, training, 0, folder, peers=(LARGE, LONG))
            for backbone, training in zip(backbones, rates, strict=True)
        ]

    expected = [each.run() for each in passes(tmp_path / "alone")]
    assert not equal(expected[0], expected[1])
    if ahead is not None:
        calls = count(1)
        with pytest.MonkeyPatch.context() as patch, image_memory(0):
            patch.setattr(stop, "_received_signals", [15])
            patch.setattr(stop, "is_requested", lambda: next(calls) == LARGE.batch_size // 4 + 1)
            with pytest.raises(stop.Stopped):
                passes(tmp_path)[ahead].run()
    together = passes(tmp_path)
    SIZES.clear()
    assert train_passes(together) == {}
    assert all(equal(each.heads, heads) for each, heads in zip(together, expected, strict=True))
    repeated = 0 if ahead is None else 20 - LARGE.batch_size
    assert sum(SIZES) == (2 if ahead is None else 1.5) * 40 + repeated
    SIZES.clear()
    assert equal(passes(tmp_path)[1].run(), expected[1])  # stored
    assert not SIZES


@pytest.mark.parametrize("finished", [False, True])
def test_a_backbone_that_fails_leaves_the_stream_to_the_others(
    finished: bool,
    backbones: list[Encoder],
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alone: list[Heads],
) -> None:
    class Activation:
        """Stands for what a failed forward pass holds."""

    held: list[weakref.ref[Activation]] = []
    calls = count(2 * finished)

    def use(network: nn.Module, pixels: Tensor) -> Tensor:
        if held:
            assert held[0]() is None, "the failed network's memory is still used"
        elif next(calls) == 3:  # of the second backbone
            activation = Activation()
            held.append(weakref.ref(activation))
            raise torch.OutOfMemoryError("no memory")
        return pixels.reshape(len(pixels), 512, -1).sum(dim=2)

    passes = [Pass(backbone, images, SMALL, 0, tmp_path) for backbone in backbones]
    if finished:
        passes[0].run()
    monkeypatch.setattr(transfer.frozen.linear_heads, "forward", use)
    errors = train_passes(passes)
    assert [*errors] == [passes[1]]
    assert str(errors[passes[1]]) == "no memory"
    assert equal(passes[0].heads, alone[0])
    assert passes[1].requested.step < passes[0].requested.step


def test_each_probe_keeps_its_own_curve(
    small_backbone: Encoder, images: Images, tmp_path: Path
) -> None:
    test = Features(torch.randn(6, 512), torch.arange(6) % 3)
    for item in (SMALL, LONG):
        location, what = tmp_path / str(item.epochs), (small_backbone, images, item, 0)
        alone = Pass(*what, location / "alone", test)
        by_itself = train_and_score(alone, test, location / "alone")
        with_peers = Pass(*what, tmp_path / "passes", test, peers(item))
        shared = train_and_score(with_peers, test, location / "own")
        assert shared.details == by_itself.details
        assert len(shared.details["top1_after_each_pass"]) == item.epochs
    assert len(list((tmp_path / "passes").glob("*.stage"))) == 1


def test_only_missing_heads_are_trained_after_waiting(
    small_backbone: Encoder,
    images: Images,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    test = Features(torch.randn(6, 512), torch.arange(6) % 3)
    passes = tmp_path / "passes"

    def run(name: str, item: ProbeTraining, together: tuple[ProbeTraining, ...]) -> Predictions:
        shared = Pass(small_backbone, images, item, 0, passes, test, together)
        return train_and_score(shared, test, tmp_path / name)

    expected = run("holder", SMALL, ())
    (lock,) = passes.glob("*.lock")
    SIZES.clear()
    for item, trained in ((SMALL, 0), (LARGE, 60)):
        with ExitStack() as holder:
            holder.enter_context(wait_for_lock(lock))
            monkeypatch.setattr("time.sleep", lambda _, holder=holder: holder.close())
            result = run(f"waits-{trained}", item, peers(item))
        assert capsys.readouterr().err.count("waiting for another process that trains") == 1
        if item == SMALL:
            assert torch.equal(result.scores, expected.scores)
        assert trained <= sum(SIZES) < trained + LARGE.batch_size
    assert not list(tmp_path.glob("waits-*/pass-*"))  # no state of its own


def test_truncated_state_counts_as_missing(
    small_backbone: Encoder, images: Images, train: Train, tmp_path: Path, alone: list[Heads]
) -> None:
    train(SMALL, tmp_path, ())
    SIZES.clear()
    assert equal(train(SMALL, tmp_path, ()), alone[0])
    assert not SIZES
    (file,) = tmp_path.glob("*.stage")
    content = file.read_bytes()
    for share in (0.0, 0.001, 0.5, 0.99):
        for zeros in (False, True):
            length = int(share * len(content))
            file.write_bytes(content[:length] + bytes(len(content) - length if zeros else 0))
            SIZES.clear()
            assert equal(train(SMALL, tmp_path, ()), alone[0])
            assert sum(SIZES) == 40, (share, zeros)


def test_the_stream_alone_names_the_file(
    small_backbone: Encoder, images: Images, tmp_path: Path
) -> None:
    def file(*trainings: ProbeTraining, seed: int = 0) -> Path:
        return Pass(small_backbone, images, trainings[0], seed, tmp_path, peers=trainings[1:]).file

    assert file(SMALL) == file(LONG, SMALL) == file(LARGE)
    remaining = [replace(SMALL, crop_px=64), replace(SMALL, labels="rotations")]
    assert len({file(SMALL), file(SMALL, seed=1), *map(file, remaining)}) == 4
