import errno
import os
from pathlib import Path

import pytest
import torch

from pretrain.checkpoint import CheckpointError, load, save

SETTINGS: dict[str, object] = {"recipe": "jcl/smoke", "seed": 0, "batch_norm_groups": 2}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint that was saved."""
    path = tmp_path / "checkpoint.pt"
    saved = SETTINGS | {"paper": "section 6.3", "config.bn_splits": 1}
    # torch fails otherwise if it is small
    save(path, {"weight": torch.tensor(1.5), "settings": saved, "large": torch.ones(100_000)})
    return path


NEW: dict[str, object] = {"config.negative_weight": 1.0}
"""An option that is newer than the checkpoint, with its default."""


def test_checkpoint_loads_with_other_free_text(path: Path) -> None:
    assert load(path.with_name("absent.pt"), SETTINGS, NEW) is None
    changes = {"paper": "section 6.2", "config.bn_splits": 2}
    state = load(path, SETTINGS | NEW | changes, NEW)
    assert state is not None
    assert state["weight"].item() == 1.5
    assert [file.name for file in path.parent.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 7}, "made by another run: --seed 0 -> 7"),
        ({"batch_norm_groups": 1}, "processes times --bn-splits.* batch_norm_groups 2 -> 1"),
        ({"config.negative_weight": 2.0}, "--negative-weight 1.0 -> 2.0"),
        ({"recipe": "moco/smoke"}, "the recipe: recipe 'jcl/smoke' -> 'moco/smoke'"),
    ],
)
def test_other_settings_are_refused_with_the_difference(
    path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(path, SETTINGS | NEW | changes, NEW)


@pytest.mark.parametrize("zeros", [False, True])
def test_a_checkpoint_that_a_dying_machine_has_torn_is_refused(path: Path, zeros: bool) -> None:
    content = path.read_bytes()
    for stored in (0.0, 0.001, 0.5, 0.97):
        length = int(stored * len(content))
        path.write_bytes(content[:length] + bytes(len(content) - length if zeros else 0))
        with pytest.raises(CheckpointError, match=r"checkpoint.pt is not a training checkpoint"):
            load(path, SETTINGS, NEW)


def test_a_disk_that_cannot_be_read_is_no_broken_checkpoint(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("pretrain.running.reading.read_bytes", fail)
    with pytest.raises(OSError, match="Input/output error"):
        load(path, SETTINGS, NEW)
