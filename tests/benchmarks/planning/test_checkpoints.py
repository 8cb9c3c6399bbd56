"""The cached description of a checkpoint is that of its file."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import benchmarks.planning.checkpoints
from benchmarks.planning.checkpoints import Origin
from transfer.backbone import Backbone, BackboneError


def shown(backbone: Backbone) -> dict[str, Any]:
    return vars(backbone) | {"state_dict": {}, "made_by": {}}


def test_a_file_is_read_once_until_it_changes(
    four_heads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = Origin(ckpt=four_heads, name="a", heads=(2, 0))
    origins = [heads, replace(heads, name="", heads=()), replace(heads, heads=(), random=True)]
    expected = [shown(origin.load()) for origin in origins]
    assert expected[0]["name"] == "a-heads2+0"
    assert [shown(origin.describe(tmp_path)) for origin in origins] == expected
    monkeypatch.delattr(benchmarks.planning.checkpoints, "load")
    assert [shown(origin.describe(tmp_path)) for origin in origins] == expected
    monkeypatch.undo()
    before = four_heads.stat()
    four_heads.write_bytes(bytes(before.st_size))
    os.utime(four_heads, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BackboneError):
        heads.describe(tmp_path)
