"""Commands of the documentation run, and options and files exist."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml

from docs.generate import PAGES

ROOT = Path(__file__).parents[2]
WRITTEN = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if "_build" not in path.parts
    and (path.parent.name, path.stem) not in [("reference", name) for name in PAGES]
]
READMES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("[a-z]*/README.md"))]
OTHER_PROGRAMS = {
    *("shutdown-timeout", "nproc-per-node", "exclude", "wheel", "bind", "nv"),
    *("no-build-isolation", "ntasks-per-node"),
}
"""Options of torchrun, sbatch, uv, pip, apptainer and srun in examples."""


@cache
def all_options() -> set[str]:
    pages = ("run_all", "results", "transfer", "pretrain", "slurm")
    text = "".join(PAGES[page]() for page in pages)
    return {"help", "list", *re.findall(r"--([a-z][\w-]*)", text)}


@pytest.mark.parametrize("path", [*WRITTEN, *READMES], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_named_option_exists(path: Path) -> None:
    output = "".join(re.findall(r"```.*?```|`[^`]+`", path.read_text(), re.S))
    named = set(re.findall(r"(?<![\w-])--([a-z][\w-]*)", output))
    assert named - all_options() - OTHER_PROGRAMS == set()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_page_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 120


@pytest.mark.parametrize("path", READMES, ids=lambda path: str(path.relative_to(ROOT)))
def test_readme_is_short_and_its_links_exist(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= (120 if path.parent == ROOT else 40)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_network_of_the_encoder_page_returns_features() -> None:
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/howto/encoder.md").read_text(), re.S
    )
    names: dict[str, object] = {}
    exec(block, names)
    build = names["build"]
    assert callable(build)
    assert build()(torch.zeros(2, 3, 224, 224)).shape == (2, 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["tutorials/first_comparison", "tutorials/first_pretraining", "howto/follow"]
)
def test_commands_of_a_page_run(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text()
    bash = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.S))
    assert bash.count("python ") >= 3
    folder = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = bash.replace("benchmarks/run_all.py", str(ROOT / "benchmarks/run_all.py"))
    completed = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert (tmp_path / "results" / "report" / "index.html").exists()


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda p: p.stem
)
def test_workflow_is_yaml_and_calls_targets_of_make(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    args = " ".join(re.findall(r"make ([a-z -]+)", commands)).split()
    makefile = (ROOT / "Makefile").read_text()
    assert [arg for arg in args if f"\n{arg}:" not in makefile] == []
