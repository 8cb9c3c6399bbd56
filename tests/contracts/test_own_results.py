"""Git ignores a user's results and tracks the suite's own."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", ["records/mine/cifar10_knn.json", "tables/overview.md", "report/index.html", "new"]
)
def test_git_ignores_what_runs_write_but_not_the_reference(path: str) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy of the suite is no checkout")
    paths = [f"results/{path}", f"results/reference/{path}", f"results/contributed/{path}"]
    command = ["git", "check-ignore", "--no-index", *paths]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.stdout.split() == [f"results/{path}"]
