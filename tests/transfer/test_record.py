"""A record is written whole or not at all."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pretrain.running.source import commit
from transfer.record import (
    Record,
    RecordError,
    cell_path,
    cell_records,
    conditions,
    detectron2_version,
    hash_of_record,
    read_record,
    record_path,
    run_environment,
    store_record,
    write_json,
    write_json_record,
)

RECORD = Record(
    backbone={"name": "jcl", "arch": "resnet50", "stem": "imagenet", "sha256": "ab"},
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
    request={"options": {}, "input": {}},
    primary_metric="top1",
    heading="Linear transfer",
)


def unlike(**changes: Any) -> Record:
    return replace(RECORD, **changes)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = record_path(tmp_path, "jcl", RECORD.task, "lorac-2021/1", "smoke", 0)
    write_json_record(path, RECORD)
    assert read_record(path) == RECORD
    assert path == tmp_path / "jcl/transfer_linear/cars.lorac-2021-1.smoke.seed0.json"


@pytest.mark.parametrize("text", ["", '{"format": "ssl-rec', "[]", '{"format": "other/1"}'])
def test_a_torn_or_foreign_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"r\.json"):
        read_record(path)


def test_edited_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_json_record(path, unlike(metrics={"top1": 50.0, "top5": 90.5}, details={"rate": 1e-05}))
    content = json.loads(path.read_text())
    text = json.dumps(dict(reversed(content.items())))
    text = text.replace("50.0", "50").replace("1e-05", "1E-5")
    path.write_text(text)
    assert read_record(path).metrics == {"top1": 50.0, "top5": 90.5}
    path.write_text(text.replace("90.5", "90.6"))
    with pytest.raises(RecordError, match="edited after it was written"):
        read_record(path)
    assert [str(path) in line for line in cell_records(path)[1]] == [True]
    write_json(path, {key: value for key, value in content.items() if key != "content_hash"})
    with pytest.raises(RecordError, match="no content_hash: an earlier version wrote it"):
        read_record(path)


@pytest.mark.parametrize("value", [250.0, -1.0, float("nan"), float("inf")])
def test_a_metric_out_of_range_is_neither_written_nor_read(tmp_path: Path, value: float) -> None:
    path = tmp_path / "r.json"
    impossible = unlike(metrics={"mean_cosine": -50.0, "top1": value})
    with pytest.raises(ArithmeticError, match=f"^top1 is {value}, expected 0 to 100 %"):
        write_json_record(path, impossible)
    assert not path.exists()
    content = asdict(impossible)
    write_json(path, content | {"content_hash": hash_of_record(content)})
    with pytest.raises(RecordError, match=f"top1 is {value}"):
        read_record(path)


def data(small: str = "", tolerated: int = 0) -> dict[str, Any]:
    return {"cars": {"fingerprint": "f", "counts": {}, "small": small, "tolerated": tolerated}}


FIRST = unlike(data=data())
OTHERS = {
    "engine": replace(FIRST, engine="detectron2"),
    "arithmetic": replace(FIRST, details={"features_in": "bfloat16"}),
    "processes": replace(FIRST, details={"num_processes": 2}),
    "norm": replace(FIRST, details={"num_processes": 2, "norm": "naiveSyncBN"}),
    "departures": replace(FIRST, departures=["15 kinds"]),
    "excerpt": replace(FIRST, data=data(small="excerpt")),
    "tolerated": replace(FIRST, data=data(tolerated=1)),
}
"""Records of other conditions than the first."""


def test_records_of_other_conditions_lie_beside_the_first(tmp_path: Path) -> None:
    path = cell_path(tmp_path, RECORD)
    assert store_record(path, FIRST) == path
    files = {store_record(path, second): second for second in OTHERS.values()}
    assert len(files) == len(OTHERS)
    assert all(file.name.startswith(f"{path.stem}.") for file in files)
    for file, second in files.items():
        assert store_record(path, replace(second, wall_s=7.0)) == file
    assert cell_records(path) == (
        {path: FIRST} | {file: replace(second, wall_s=7.0) for file, second in files.items()},
        [],
    )


def test_one_process_has_no_shared_norm() -> None:
    single = unlike(details={"num_processes": 1, "norm": "BN"})
    assert conditions(single) == conditions(RECORD)


def test_record_of_other_weights_is_not_replaced(tmp_path: Path) -> None:
    path = cell_path(tmp_path, RECORD)
    second = unlike(backbone=RECORD.backbone | {"sha256": "other"})
    store_record(path, RECORD)
    beside = store_record(path, second)
    assert store_record(path, second) == beside
    assert cell_records(path) == ({path: RECORD, beside: second}, [])


def install(folder: Path, direct_url: dict[str, Any] | None) -> None:
    """Write the installed metadata of detectron2, with its source."""
    about = folder / "detectron2-0.6.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: detectron2\nVersion: 0.6\n")
    if direct_url is not None:
        (about / "direct_url.json").write_text(json.dumps(direct_url))


@pytest.mark.parametrize(
    ("direct_url", "commit_id"),
    [
        (None, ""),
        ({"url": "https://example.org", "vcs_info": {"commit_id": "0ae803b1"}}, "0ae803b1"),
        ({"url": Path(__file__).parent.as_uri(), "dir_info": {"editable": True}}, commit()[:10]),
        ({"url": "file:///no/such/folder", "dir_info": {}}, ""),
    ],
    ids=["wheel", "git", "checkout", "lost folder"],
)
def test_versions_name_detectron2_and_its_commit(
    direct_url: Any, commit_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, direct_url)
    monkeypatch.syspath_prepend(tmp_path)
    result = detectron2_version()
    assert result["detectron2"] == "0.6"
    assert result.get("detectron2_commit", "")[:10] == commit_id
    assert result.items() <= run_environment()["versions"].items()
