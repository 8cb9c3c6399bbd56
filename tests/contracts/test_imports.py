"""Who may import whom, read from the source."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("pretrain", "transfer", "benchmarks", "slurm")
PIXELS = "pretrain.pixels"
"""The one room of pre-training that transfer may import."""
MAY_IMPORT = {
    "pretrain": {"pretrain", PIXELS},
    "transfer": {"transfer", PIXELS},
    "benchmarks": {"benchmarks", "transfer", "slurm", PIXELS},
    "slurm": {"slurm"},
}
LAYERS = {
    "transfer": (
        ("__main__", "readme_tables", "checks"),
        ("cells",),
        ("tasks",),
        ("galleries",),
        ("detection", "segmentation"),
        ("finetuning",),
        ("frozen",),
        ("topology",),
        ("projector",),
        ("backbone",),
        ("convert",),
        ("getting",),
        ("datasets",),
        ("record",),
        ("metrics",),
        ("running",),
    ),
    "benchmarks": (
        ("speed", "curves", "run_all", "status", "explain", "gpu_check"),
        ("gpu",),
        ("cluster",),
        ("execution",),
        ("planning",),
        ("report",),
        ("report_parts",),
        ("tables",),
        ("figures",),
        ("drawing",),
        ("pages",),
    ),
}
"""Rooms from top to bottom: imports go downwards, and rooms of one layer do not know each other."""
BENCHMARKED = {"benchmarks.run_all"}
"""Modules that the benchmarks of speed/ run although they stand beside them."""
HEAVY = {"detectron2", "mmseg", "mmcv", "mmengine", "submitit"}
NOT_A_TASKS_BUSINESS = {"transfer.cells.execution", "transfer.record", "transfer.__main__"}


CLASS_OF_A_TASK = re.compile(r"(isinstance|getattr|hasattr)\([^()]*\btask\b")


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


def room_of(name: str) -> str | None:
    """Return the room of a module, with PIXELS as a room of its own; None if it is not ours."""
    if f"{name}.".startswith(f"{PIXELS}."):
        return PIXELS
    top = name.split(".")[0]
    return top if top in ROOMS else None


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_rooms_import_only_what_they_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    used = {room_of(name) for name in imported(ast.parse(path.read_text()))} - {None}
    assert used <= MAY_IMPORT[room]


def test_pixels_import_nothing_else_of_ours() -> None:
    files = sorted((ROOT / "pretrain/pixels").glob("*.py"))
    used = {room_of(name) for path in files for name in imported(ast.parse(path.read_text()))}
    assert used - {None} == {PIXELS}


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_heavy_frameworks_are_imported_where_they_are_needed(path: Path) -> None:
    top_level = ast.Module(
        [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)],
        [],
    )
    assert not {name.split(".")[0] for name in imported(top_level)} & HEAVY


@pytest.mark.parametrize("path", sorted((ROOT / "pretrain/methods").glob("[a-z]*.py")), ids=name_of)
def test_a_method_imports_parts_its_settings_and_the_protocol_only(path: Path) -> None:
    names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("pretrain")}
    allowed = ("pretrain.parts.", "pretrain.recipes.", "pretrain.method.")
    assert all(f"{name}.".startswith(allowed) for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "pretrain/parts").glob("[a-z]*.py")), ids=name_of)
def test_parts_import_parts_only(path: Path) -> None:
    names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("pretrain")}
    assert all(name.startswith("pretrain.parts") for name in names)


@pytest.mark.parametrize("path", sorted((ROOT / "transfer/tasks").glob("[a-z]*.py")), ids=name_of)
def test_a_task_never_imports_another_nor_the_record(path: Path) -> None:
    names = set(imported(ast.parse(path.read_text())))
    others = {name for name in names if name.startswith("transfer.tasks")}
    assert all(name.split(".")[2] in ("task", "recipe_training") for name in others)
    assert not names & NOT_A_TASKS_BUSINESS


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_nobody_asks_of_which_class_a_task_is(path: Path) -> None:
    assert not CLASS_OF_A_TASK.search(path.read_text())


def layer_of(name: str) -> int | None:
    top, *rest = name.split(".")
    layers = LAYERS.get(top, ())
    return next((i for i, rooms in enumerate(layers) if rest and rest[0] in rooms), None)


@pytest.mark.parametrize(
    "path", [p for p in sources() if layer_of(name_of(p)) is not None], ids=name_of
)
def test_imports_go_downwards_between_rooms(path: Path) -> None:
    own = name_of(path)
    here, room = layer_of(own), own.split(".")[:2]
    for name in set(imported(ast.parse(path.read_text()))):
        there = layer_of(name)
        if there is None or name.split(".")[:2] == room or name.split(".")[0] != room[0]:
            continue
        below = here is not None and there > here
        assert below or ".".join(name.split(".")[:2]) in BENCHMARKED, f"{own} imports {name}"


def test_no_module_hides_a_standard_one_from_a_script_beside_it() -> None:
    # `python benchmarks/run_all.py` looks for modules in benchmarks/ first
    beside = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    assert not beside & sys.stdlib_module_names


@pytest.mark.parametrize("room", LAYERS)
def test_every_room_has_a_layer(room: str) -> None:
    inside = {
        p.stem for p in (ROOT / room).iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert inside - {"__init__"} == {name for layer in LAYERS[room] for name in layer}
