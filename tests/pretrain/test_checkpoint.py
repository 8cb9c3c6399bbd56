import errno
import os
from pathlib import Path

import pytest
import torch

from pretrain.checkpoint import CheckpointError, load, save

SETTINGS: dict[str, object] = {"recipe": "jcl/smoke", "seed": 0}


def state(value: float) -> dict[str, object]:
    return {"weight": torch.tensor(value), "settings": SETTINGS}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert load(path, SETTINGS) is None
    save(path, state(1.5))
    loaded = load(path, SETTINGS)
    assert loaded is not None
    assert loaded["weight"].item() == 1.5
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_checkpoint_of_other_settings_is_refused_with_the_difference(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint.pt", state(1.0))
    with pytest.raises(CheckpointError, match="made by another run: seed 0 -> 7"):
        load(tmp_path / "checkpoint.pt", SETTINGS | {"seed": 7})


@pytest.mark.parametrize("text", ["paper", "table_row", "images"])
def test_a_checkpoint_goes_on_after_a_description_was_corrected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint.pt"
    save(path, state(1.5) | {"settings": SETTINGS | {text: "section 6.3"}})
    assert load(path, SETTINGS | {text: "section 6.2"}) is not None


def groups(number: int, splits: int | None = 1) -> dict[str, object]:
    settings = SETTINGS | {"batch_norm_groups": number}
    return settings if splits is None else settings | {"config.bn_splits": splits}


@pytest.mark.parametrize(
    ("splits", "advice"), [(1, "processes times --bn-splits were 2"), (None, "with 2 processes,")]
)
def test_another_number_of_batch_norm_groups_is_refused_with_the_way_to_the_same(
    tmp_path: Path, splits: int | None, advice: str
) -> None:
    save(tmp_path / "checkpoint.pt", state(1.0) | {"settings": groups(2, splits)})
    with pytest.raises(CheckpointError, match=f"batch_norm_groups 2 -> 1.*{advice}"):
        load(tmp_path / "checkpoint.pt", groups(1, splits))


def test_splits_make_up_for_processes(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint.pt", state(1.0) | {"settings": groups(2, 1)})
    assert load(tmp_path / "checkpoint.pt", groups(2, 2)) is not None


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut"])
def test_a_broken_checkpoint_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"checkpoint.pt is no checkpoint of a run"):
        load(path, SETTINGS)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.97])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_checkpoint_that_a_dying_machine_has_torn_is_refused(
    tmp_path: Path, kept: float, zeros: bool
) -> None:
    path = tmp_path / "checkpoint.pt"
    save(path, {**state(1.0), "large": torch.ones(100_000)})  # torch fails otherwise if it is small
    content = path.read_bytes()
    length = int(kept * len(content))
    path.write_bytes(content[:length] + bytes(len(content) - length if zeros else 0))
    with pytest.raises(CheckpointError, match=r"checkpoint.pt is no checkpoint of a run .*delete"):
        load(path, SETTINGS)


def test_a_disk_that_cannot_be_read_is_no_broken_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.pt"
    save(path, state(1.0))

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(OSError, match="Input/output error"):
        load(path, SETTINGS)


def test_an_option_from_after_the_checkpoint_may_have_its_default(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    save(path, state(1.5))
    defaults = {"config.negative_weight": 1.0}
    assert load(path, SETTINGS | defaults, defaults) is not None
    with pytest.raises(CheckpointError, match=r"negative_weight 1.0 -> 2.0"):
        load(path, SETTINGS | {"config.negative_weight": 2.0}, defaults)
