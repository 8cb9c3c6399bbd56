"""Slurm's programs without a cluster: each is a few lines of bash."""

from pathlib import Path

import pytest


def fake_programs(folder: Path, patch: pytest.MonkeyPatch, **lines: str) -> Path:
    """Put these programs first on the PATH; return their folder."""
    folder.mkdir(exist_ok=True)
    for name, text in lines.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o700)
    patch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    return folder
