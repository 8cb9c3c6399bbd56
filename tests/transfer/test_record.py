"""A record is written whole or not at all."""

import errno
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from transfer.record import (
    Record,
    RecordError,
    failure_path,
    former_path,
    protocol_hash,
    read_record,
    record_files,
    record_path,
    store_record,
    write_json,
    write_record,
)


@dataclass(frozen=True, kw_only=True)
class Toy:
    rate: float = 0.1


RECORD = Record(
    backbone={"name": "jcl", "sha256": "ab"},
    task="transfer_linear/cars",
    protocol={"name": "lorac-2021/1", "hash": "0", "paper_hash": "0", "fields": {}},
    schedule="smoke",
    seed=0,
    engine="torch",
    metrics={"top1": 12.5},
    details={},
    data={},
    departures=[],
    wall_s=1.0,
    peak_memory_gb=0.1,
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = record_path(tmp_path, "jcl", RECORD.task, "lorac-2021/1", "smoke", 0)
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert path == tmp_path / "jcl/transfer_linear/cars.lorac-2021-1.smoke.seed0.json"


def test_a_failed_write_leaves_the_old_record_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    write_record(path, RECORD)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_record(path, replace(RECORD, metrics={"top1": 99.0}))
    assert read_record(path) == RECORD
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("text", ["", '{"format": "ssl-rec', "[]", '{"format": "other/1"}'])
def test_a_torn_or_foreign_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"r\.json"):
        read_record(path)


def test_every_number_of_a_protocol_shapes_its_hash() -> None:
    hashes = {
        protocol_hash("a", Toy()),
        protocol_hash("a", Toy(rate=0.2)),
        protocol_hash("b", Toy()),
    }
    assert len(hashes) == 3
    assert protocol_hash("a", Toy()) == protocol_hash("a", Toy(rate=0.1))


def test_success_clears_an_earlier_failure(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_json(failure_path(path), {"reason": "no"})
    write_record(path, RECORD)
    assert not failure_path(path).exists()
    assert json.loads(path.read_text())["metrics"] == {"top1": 12.5}


def unlike(**changes: Any) -> Record:
    return replace(RECORD, **changes)


@pytest.mark.parametrize(
    "other",
    [
        unlike(engine="detectron2"),
        unlike(details=RECORD.details | {"features_in": "bfloat16"}),
        unlike(details=RECORD.details | {"num_processes": 2}),
        unlike(departures=["15 kinds"]),
        unlike(data={"cars": {"fingerprint": "f", "small": "excerpt", "tolerated": 0}}),
        unlike(data={"cars": {"fingerprint": "f", "small": "", "tolerated": 1}}),
    ],
    ids=["engine", "arithmetic", "processes", "departures", "excerpt", "tolerated"],
)
def test_a_record_of_other_conditions_lies_beside_the_first(tmp_path: Path, other: Record) -> None:
    path = tmp_path / "task.seed0.json"
    first = unlike(data={"cars": {"fingerprint": "f", "small": "", "tolerated": 0}})
    other = replace(other, data=other.data or first.data)
    assert store_record(path, first) == path
    beside = store_record(path, other)
    assert beside != path
    assert beside.name.startswith("task.seed0.")
    assert (read_record(path), read_record(beside)) == (first, other)
    assert store_record(path, replace(other, wall_s=7.0)) == beside
    assert len(list(tmp_path.iterdir())) == 2


def test_a_record_of_the_same_conditions_replaces_the_first(tmp_path: Path) -> None:
    path = tmp_path / "task.seed0.json"
    store_record(path, RECORD)
    newer = unlike(backbone={"name": "jcl", "sha256": "other"})
    assert store_record(path, newer) == path
    assert read_record(path) == newer


def test_a_record_takes_the_place_of_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "task.seed0.json"
    path.write_text("{")
    assert store_record(path, RECORD) == path


def test_a_record_beside_the_first_forgets_the_failure_of_its_cell(tmp_path: Path) -> None:
    path = tmp_path / "task.seed0.json"
    store_record(path, RECORD)
    failure_path(path).write_text("{}")
    store_record(path, unlike(engine="other"))
    assert not failure_path(path).exists()


def test_records_of_another_seed_are_of_another_cell(tmp_path: Path) -> None:
    store_record(tmp_path / "task.seed1.json", RECORD)
    store_record(tmp_path / "task.seed10.json", RECORD)
    failure_path(tmp_path / "task.seed1.json").write_text("{}")
    assert record_files(tmp_path / "task.seed1.json") == [tmp_path / "task.seed1.json"]


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ("r/records/jcl/transfer_linear/cars.json", "r/jcl/transfer_linear/cars.json"),
        ("r/records/snapshots/a@1/knn.json", "r/curves/a@1/knn.json"),
        ("elsewhere/jcl/knn.json", "elsewhere/jcl/knn.json"),
    ],
)
def test_records_were_in_other_folders_before(now: str, before: str) -> None:
    assert former_path(Path(now)) == Path(before)


def test_a_record_in_its_former_place_is_found_and_replaced_there(tmp_path: Path) -> None:
    path = record_path(tmp_path / "records", "jcl", RECORD.task, "lorac-2021/1", "smoke", 0)
    before = former_path(path)
    write_record(before, RECORD)
    assert record_files(path) == [before]
    assert store_record(path, replace(RECORD, metrics={"top1": 13.0})) == before
    assert not path.exists()
    assert read_record(before).metrics == {"top1": 13.0}
