"""Packages that a user installs add to the registries.

Two packages cannot share a name.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
GROUPS = """
[ssl_benchmark.{group}]
mine = my_ssl.{module}:{name}
"""
CODE = {
    "__init__": "",
    "recipes": """
from dataclasses import dataclass, replace
from pretrain.recipes.simclr import RECIPES as SIMCLR
@dataclass(frozen=True, kw_only=True)
class MineConfig:
    embedding_dim: int = 8
RECIPES = {"mine/in1k-r50": replace(SIMCLR["simclr/in1k-r50"], method="mine", config=MineConfig())}
""",
    "methods": """
from pretrain.methods.simclr import SimCLR
METHODS = {"mine": SimCLR}
""",
    "tasks": """
from transfer.tasks.knn import KNN
TASKS = {"mine_knn": KNN(dataset="mine", protocol="mine/1")}
""",
    "datasets": """
from dataclasses import replace
from transfer.datasets.labeled import DATASETS as LABELED
DATASETS = {"mine": replace(LABELED["dtd"], title="Mine")}
""",
    "papers": """
from pathlib import Path
PAPERS = {"mine": Path(__file__).with_name("mine.yaml")}
""",
}
PAPER = """
paper: mine
name: Mine
title: My paper
venue: none
arxiv: "0000.00000"
tables:
- id: mine/table1
  number: Table 1
  kind: results
  title: Nearest neighbors
  columns:
  - {key: top1, label: k-NN, task: mine_knn, metric: top1, protocol: mine, higher_is_better: true}
  rows:
  - {label: Mine, role: own, method: mine, recipe: mine/in1k-r50, values: {top1: 12.5}}
"""
SHOW = """
import sys
from pretrain.recipes import RECIPES
from transfer.tasks import TASKS
from transfer.datasets.catalog import DATASETS
from benchmarks.results.published import papers
from benchmarks.planning.cells import suites
assert "torch" not in sys.modules
from pretrain.methods import METHODS
print(RECIPES["mine/in1k-r50"].method, METHODS["mine"].__name__, TASKS["mine_knn"].protocol,
      DATASETS["mine"].title, papers()[-1].name, *suites()["mine"])
"""


def install(site: Path) -> None:
    """Write the package as pip would leave it."""
    package = site / "my_ssl"
    package.mkdir(parents=True)
    for module, code in CODE.items():
        (package / f"{module}.py").write_text(code)
    (package / "mine.yaml").write_text(PAPER)
    info = site / "my_ssl-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-ssl\nVersion: 1.0\n")
    groups = [module for module in CODE if module != "__init__"]
    args = [GROUPS.format(group=name, module=name, name=name.upper()) for name in groups]
    (info / "entry_points.txt").write_text("".join(args))


def show(site: Path) -> subprocess.CompletedProcess[str]:
    """Print what the registries hold in a process that sees the package."""
    search = os.pathsep.join([str(site), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", SHOW],
        env=os.environ | {"PYTHONPATH": search},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_a_package_adds_to_every_registry(tmp_path: Path) -> None:
    install(tmp_path)
    completed = show(tmp_path)
    assert completed.stdout.split() == ["mine", "SimCLR", "mine/1", "Mine", "Mine", "mine_knn"], (
        completed.stderr
    )


def test_a_name_of_two_packages_is_an_error_that_names_both(tmp_path: Path) -> None:
    install(tmp_path)
    tasks = tmp_path / "my_ssl" / "tasks.py"
    tasks.write_text(tasks.read_text().replace("mine_knn", "cifar10_knn"))
    completed = show(tmp_path)
    assert completed.returncode != 0
    line = completed.stderr.splitlines()[-1]
    assert all(arg in line for arg in ("cifar10_knn", "ssl-benchmark", "my-ssl"))
