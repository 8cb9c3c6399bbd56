import subprocess
from pathlib import Path

import pytest

from pretrain.running import source
from pretrain.running.source import commit


def test_an_installation_below_another_project_has_not_that_projects_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = ("-c", "user.name=me", "-c", "user.email=me@here")
    for args in (["init", "-q"], [*me, "commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run(["git", *args], cwd=tmp_path, check=True)
    monkeypatch.setattr(source, "__file__", str(tmp_path / "source.py"))
    assert commit() == ""
