"""Files that ask for gigabytes or ages are refused within thirty seconds and 2 GB; real ones not.

Each is read in another process with a limit of its memory.
"""

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.transfer.convert.bombs import FILES, SPARSE
from tests.transfer.convert.guarded import Reader
from transfer.__main__ import main
from transfer.backbone import BackboneError, load_backbone
from transfer.convert.read_file import read_file
from transfer.convert.safe_pickle import Budget, ByteReader, load_pickle
from transfer.convert.torch_file import read_nested
from transfer.convert.untrusted import budget, containers
from transfer.convert.untrusted.budget import MAX_OPERATIONS


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """A process that reads files within the limits."""
    with Reader() as process:
        yield process


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


def test_small_bombs_are_refused_within_the_budget(reader: Reader, tmp_path: Path) -> None:
    for name in QUICK[::12]:  # the slow test tries each
        (tmp_path / "file").write_bytes(FILES[name])
        outcome = reader.read(tmp_path / "file")
        assert outcome.end == "refused", (name, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILES))
def test_each_bomb_is_refused_within_the_budget(name: str, reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(FILES[name])
    outcome = reader.read(tmp_path / "file")
    assert outcome.end == "refused", outcome


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW_SPARSE else n for n in SPARSE],
)
def test_sparse_files_are_refused_without_being_read(
    name: str, reader: Reader, tmp_path: Path
) -> None:
    SPARSE[name](tmp_path / "file")
    outcome = reader.read(tmp_path / "file")
    assert outcome.end == "refused", outcome


def test_a_bomb_ends_the_command_line_with_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(FILES["bytearray of 8e9 by REDUCE, pickle"])
    assert main(["inspect", str(tmp_path / "file")]) == 2
    assert "bytes are spelled as int" in capsys.readouterr().err


LONG = "x" * 1_000_000
OWN = {
    "format": "ssl-backbone/1",
    "arch": "resnet18",
    "stem": "imagenet",
    "state_dict": {},
    "input": {},
    "made_by": {},
}


@pytest.mark.parametrize(
    "fields",
    [{"arch": LONG}, {"stem": LONG}, {"state_dict": {LONG: 1}}, {"input": {LONG: LONG}}],
    ids=lambda fields: next(iter(fields)),
)
def test_long_texts_of_our_own_format_are_not_repeated(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(pickle.dumps({**OWN, **fields}))
    with pytest.raises(BackboneError) as raised:
        load_backbone(tmp_path / "file")
    assert len(str(raised.value)) < 5000


@pytest.mark.slow
def test_a_log_of_100_000_entries_stays_within_the_budget(tmp_path: Path) -> None:
    log = [{"iter": i, "loss": float(i), "lr": np.float64(i)} for i in range(100_000)]
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        content = {"weight": torch.ones(2), "log": log}
        (tmp_path / "file").write_bytes(pickle.dumps(content, protocol=protocol))
        contents = read_file(tmp_path / "file")
        assert contents.values["log.99999.iter"] == 99_999
        assert list(contents.tensors) == ["weight"]


def image_list(num_images: int) -> list[tuple[str, int]]:
    """A list of images as ImageFolder keeps it."""
    return [(f"/data/train/n{i:08d}/n{i:08d}_{i}.JPEG", i % 1000) for i in range(num_images)]


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_list_of_images_may_cost_in_proportion_to_its_file(
    protocol: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # all limits and the list are a thousandth of the real ones
    monkeypatch.setattr(budget, "MAX_OPERATIONS", MAX_OPERATIONS // 1000)
    monkeypatch.setattr(budget, "MAX_FURTHER_OPERATIONS", budget.MAX_FURTHER_OPERATIONS // 1000)
    monkeypatch.setattr(containers, "MAX_CONTAINERS", containers.MAX_CONTAINERS // 1000)
    monkeypatch.setattr(containers, "MAX_PLAIN", containers.MAX_PLAIN // 1000)
    images = image_list(1281)
    content = {
        "weight": torch.ones(2),
        "data": {"samples": images, "imgs": images, "targets": [label for _, label in images]},
    }
    (tmp_path / "file").write_bytes(pickle.dumps(content, protocol=protocol))
    assert list(read_file(tmp_path / "file").tensors) == ["weight"]
    (tmp_path / "file").write_bytes(pickle.dumps({**content, "more": [0] * 5000}, protocol))
    with pytest.raises(BackboneError, match="operations to read"):
        read_file(tmp_path / "file")


@pytest.mark.slow
def test_a_list_of_all_images_of_imagenet_is_read_beside_the_network(tmp_path: Path) -> None:
    content = {"weight": torch.ones(2), "samples": image_list(1_281_167)}
    torch.save(content, tmp_path / "file")
    contents = read_file(tmp_path / "file")
    assert list(contents.tensors) == ["weight"]
    assert contents.values["samples.9999.1"] == 999


@pytest.mark.slow
def test_the_list_of_imagenet_stays_within_the_memory(reader: Reader, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2), "samples": image_list(1_281_167)}, tmp_path / "file")
    outcome = reader.read(tmp_path / "file")
    # no ResNet is in it; on a busy machine its hundred megabytes may take more than the processor
    # time, whose limit then ends the process
    assert outcome.end in ("refused", "above budget"), outcome
    assert "MemoryError" not in outcome.message


def test_a_cycle_around_shared_lists_ends_within_the_budget() -> None:
    lists: list[Any] = [[]]
    for _ in range(60):
        lists.append([lists[-1], lists[-1]])
    lists[0].append(lists[-1])
    limits = Budget(100)
    limits.operations = 10_000
    with pytest.raises(BackboneError, match="operations"):
        containers.check_extent(lists[-1], limits)


def test_shared_lists_are_measured_once() -> None:
    shared: list[Any] = [[["a"] * 100] * 10] * 10
    limits = Budget(100)
    before = limits.operations
    containers.check_extent(shared, limits)
    assert before - limits.operations < 50  # the text holds over 1000 values


@pytest.mark.parametrize("is_zip", [True, False])
def test_thousands_of_tensors_with_their_optimizer_stay_within_the_budget(
    is_zip: bool, tmp_path: Path
) -> None:
    parameters = [torch.nn.Parameter(torch.full((2,), float(i))) for i in range(500)]
    optimizer = torch.optim.Adam(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones(2)
    optimizer.step()
    content = {"model": parameters, "optimizer": optimizer.state_dict()}
    torch.save(content, tmp_path / "file", _use_new_zipfile_serialization=is_zip)
    tensors = read_file(tmp_path / "file").tensors
    assert len(tensors) == 2000
    assert torch.equal(tensors["model.499"].read(), parameters[499])


def test_a_plain_number_takes_one_operation() -> None:
    content = memoryview(pickle.dumps(list(range(50_000)), protocol=2))
    limits = Budget(len(content))
    assert load_pickle(ByteReader(content), budget=limits) == list(range(50_000))
    assert limits.operations > MAX_OPERATIONS - 51_000


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_of_any_protocol_cost_at_most_twice_their_file(protocol: int) -> None:
    array = np.arange(100_000, dtype=np.float32)
    content = memoryview(pickle.dumps({"a": array, "b": torch.from_numpy(array)}, protocol))
    limits = Budget(len(content))
    before = limits.bytes_left
    load_pickle(ByteReader(content), budget=limits, nested=read_nested)
    assert before - limits.bytes_left < 2.1 * len(content)


def nested_values(dice: random.Random, depth: int) -> Any:
    """A random value that every protocol can hold."""
    inner = [nested_values(dice, depth - 1) for _ in range(dice.randint(0, 4 if depth else 0))]
    leaf = dice.choice(
        [None, True, -1, 2**70, -(2**40), 1.5, "text\n\u20ac", b"\x00\xff", "", 70_000, 1j, ()]
    )
    keys = [f"key{index}" for index in range(len(inner))]
    return dice.choice(
        [leaf, inner, tuple(inner), dict(zip(keys, inner, strict=True)), {1, 2}, frozenset("ab")]
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    dice = random.Random(protocol)
    for _ in range(100):
        value = nested_values(dice, 4)
        content = pickle.dumps([value, value], protocol=protocol)
        assert load_pickle(ByteReader(memoryview(content))) == [value, value]
