"""Who may import whom, read from the source.

Each rule lists all that offend it.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("pretrain", "transfer", "benchmarks", "slurm")
SHARED = ("pretrain.pixels", "pretrain.running")
"""The rooms of pre-training that transfer and benchmarks may import."""
MEASURING = "benchmarks.gpu"
"""The room that measures both halves."""
MAY_IMPORT: dict[str, set[str]] = {
    "pretrain": set(),
    "transfer": set(),
    "benchmarks": {"transfer", "slurm", MEASURING},
    "slurm": set(),
    "pretrain.pixels": {"pretrain.running"},
    "pretrain.running": set(),
    MEASURING: set(ROOMS),
}
"""Packages that each package may import, besides the SHARED ones."""
LAYERS = {
    "transfer": (
        ("__main__",),
        ("api", "released_head"),
        ("cells",),
        ("tasks",),
        ("segmentation",),
        ("galleries",),
        ("detection",),
        ("finetuning",),
        ("frozen",),
        ("hours",),
        ("encoders",),
        ("getting",),
        ("datasets",),
        ("record",),
        ("metrics", "outcomes", "process_state", "argument_names", "fact_tables"),
    ),
    "benchmarks": (
        ("run_all", "explain", "power", "verify", "export", "gpu_check", "scripts"),
        ("follow",),
        ("gpu",),
        ("cluster",),
        ("execution",),
        ("planning",),
        ("report",),
        ("report_parts",),
        ("tables",),
        ("figures",),
        ("drawing",),
        ("results",),
        ("words",),
    ),
}
"""Modules from top to bottom: each imports only from lower layers."""
METHODS = {("transfer.encoders.encoder", "transfer.frozen.on_images")}
"""Upward imports inside methods of the Python API."""
ALLOWED_BELOW = {
    "pretrain.methods.": ("pretrain.parts.", "pretrain.recipes.", "pretrain.method."),
    "pretrain.parts.": ("pretrain.parts.",),
}
"""Packages that each package may import, besides the SHARED ones."""
HEAVY = {"detectron2", "mmseg", "mmcv", "mmengine", "submitit"}
NOT_A_TASKS_BUSINESS = {"transfer.cells.execution", "transfer.record", "transfer.__main__"}
BASE_OF_TASKS = re.compile(
    r"(?!transfer\.tasks)|transfer\.tasks\.(task|recipe_training|labeled_pixels)\b"
)
"""Modules outside of transfer.tasks, and there the bases of several tasks."""
CLASS_OF_A_TASK = re.compile(r"(isinstance|getattr|hasattr)\([^()]*\btask\b")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


SOURCES = {
    name_of(path): path.read_text() for room in ROOMS for path in (ROOT / room).rglob("*.py")
}
IMPORTS = {name: set(imported(ast.walk(ast.parse(text)))) for name, text in SOURCES.items()}
PAIRS = [(name, other) for name, others in IMPORTS.items() for other in others]


def room_of(name: str) -> str | None:
    """Return the room of a module; SHARED and MEASURING are rooms, too.

    None if it is not ours.
    """
    for ours in (*SHARED, MEASURING):
        if f"{name}.".startswith(f"{ours}."):
            return ours
    top = name.split(".")[0]
    return top if top in ROOMS else None


def allowed(name: str) -> set[str | None]:
    ours = room_of(name) or ""
    return {None, ours, *MAY_IMPORT[ours], *(() if ours in SHARED else SHARED)}


def layer_of(name: str) -> int | None:
    top, *rest = name.split(".")
    layers = LAYERS.get(top, ())
    return next((i for i, rooms in enumerate(layers) if rest and rest[0] in rooms), None)


def test_rooms_import_only_what_they_may_and_by_absolute_names() -> None:
    offenders = [
        (name, other)
        for name, other in PAIRS
        if other.startswith(".") or room_of(other) not in allowed(name)
    ]
    assert offenders == []


def test_imports_go_downwards_between_rooms() -> None:
    offenders = []
    for name, other in PAIRS:
        ours, their = name.split(".")[:2], other.split(".")[:2]
        here, there = layer_of(name), layer_of(other)
        if ours == their or ours[0] != their[0] or here is None or there is None:
            continue
        if there <= here and not any(
            name == ours and f"{other}.".startswith(f"{target}.") for ours, target in METHODS
        ):
            offenders.append((name, other))
    assert offenders == []


def test_methods_and_parts_import_only_what_is_below_them() -> None:
    offenders = [
        (name, other)
        for name, other in PAIRS
        for room, allowed in ALLOWED_BELOW.items()
        if name.startswith(room) and other.startswith("pretrain")
        if not f"{other}.".startswith(allowed)
    ]
    assert offenders == []


def test_a_task_never_imports_another_nor_the_record() -> None:
    offenders = [
        (name, other)
        for name, other in PAIRS
        if name.startswith("transfer.tasks.")
        if other in NOT_A_TASKS_BUSINESS or not BASE_OF_TASKS.match(other)
    ]
    assert offenders == []


def test_heavy_frameworks_are_imported_where_they_are_needed() -> None:
    top_level = {name: set(imported(iter(ast.parse(text).body))) for name, text in SOURCES.items()}
    offenders = [
        (name, other)
        for name, others in top_level.items()
        for other in others
        if other.split(".")[0] in HEAVY
    ]
    assert offenders == []


def test_nobody_asks_of_which_class_a_task_is() -> None:
    assert [name for name, text in SOURCES.items() if CLASS_OF_A_TASK.search(text)] == []


def test_no_module_hides_a_standard_one_from_a_script_beside_it() -> None:
    # `python benchmarks/run_all.py` looks for modules in benchmarks/ first
    beside = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    assert not beside & sys.stdlib_module_names


def test_every_room_has_a_layer() -> None:
    for room, layers in LAYERS.items():
        inside = {name.split(".")[1] for name in SOURCES if name.startswith(f"{room}.")}
        assert inside == {name for layer in layers for name in layer}
