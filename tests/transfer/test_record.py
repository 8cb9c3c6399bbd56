"""A record is written whole or not at all."""

import errno
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from transfer.record import (
    Record,
    RecordError,
    failure_path,
    protocol_hash,
    read_record,
    record_path,
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
