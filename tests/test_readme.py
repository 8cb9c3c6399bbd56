"""The commands that the README shows for each room run as they are printed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWN = re.findall(r"`python ([^`]*runs/small[^`]*)`", (ROOT / "README.md").read_text())


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tmp_path: Path) -> None:
    generating = [command for command in SHOWN if "generate-data" in command]
    assert (len(generating), len(SHOWN)) == (1, 5)
    for command in generating + [other for other in SHOWN if other not in generating]:
        words = shlex.split(command.replace("runs/", f"{tmp_path}/runs/"))
        if "--ckpt" in words:
            words += ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    assert len(list((tmp_path / "results" / "records" / "backbone").glob("*.json"))) == 3
