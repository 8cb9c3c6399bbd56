"""Who may import whom, read from the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("pretrain", "transfer", "benchmarks", "slurm")
MAY_IMPORT = {
    "pretrain": {"pretrain"},
    "transfer": {"transfer"},
    "benchmarks": {"benchmarks", "transfer", "slurm"},
    "slurm": {"slurm"},
}
HEAVY = {"detectron2", "mmseg", "mmcv", "mmengine", "submitit"}
NOT_A_TASKS_BUSINESS = {"transfer.cell", "transfer.record", "transfer.__main__"}


def sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_rooms_import_only_what_they_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    used = {name.split(".")[0] for name in imported(ast.parse(path.read_text()))}
    assert used & set(ROOMS) <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_heavy_frameworks_are_imported_where_they_are_needed(path: Path) -> None:
    top_level = ast.Module(
        [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)],
        [],
    )
    assert not {name.split(".")[0] for name in imported(top_level)} & HEAVY


@pytest.mark.parametrize("path", sorted((ROOT / "pretrain/methods").glob("[a-z]*.py")), ids=name_of)
def test_a_method_imports_parts_only(path: Path) -> None:
    names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("pretrain")}
    assert all(name.startswith("pretrain.parts") for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "pretrain/parts").glob("[a-z]*.py")), ids=name_of)
def test_parts_import_parts_only(path: Path) -> None:
    names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("pretrain")}
    assert all(name.startswith("pretrain.parts") for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "transfer/tasks").glob("[a-z]*.py")), ids=name_of)
def test_a_task_never_imports_another_nor_the_record(path: Path) -> None:
    names = set(imported(ast.parse(path.read_text())))
    assert not any(name.startswith("transfer.tasks") for name in names)
    assert not names & NOT_A_TASKS_BUSINESS


@pytest.mark.parametrize("path", sorted((ROOT / "transfer/running").glob("*.py")), ids=name_of)
def test_what_runs_processes_knows_nothing_of_images_or_networks(path: Path) -> None:
    names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("transfer")}
    assert all(
        name.startswith(("transfer.stop", "transfer.running")) for name in names - {"transfer"}
    )
