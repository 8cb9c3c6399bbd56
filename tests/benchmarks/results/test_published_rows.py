"""A recipe is compared only with the published rows that name it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results.numbers import numbers_of
from benchmarks.results.published import AVERAGE, Table, papers, published_recipes, transfer_tasks
from benchmarks.results.records import Backbone, Run, backbone_of, read_results
from benchmarks.results.verdicts import Pair, pairs_of
from pretrain.job import flatten
from pretrain.recipes import RECIPES
from tests.pretrain.recipe_facts import exported_arch, tables_of
from tests.synthetic_records import page, record

DATA = {"ImageNet-1k": "in1k", "ImageNet-100": "in100", "CIFAR-10": "cifar10"}
DATA |= {"CIFAR-100": "cifar100"}
TABLES = [table for paper in papers() for table in paper.tables if table.rows]


def made_by(recipe_name: str) -> dict[str, Any]:
    """The origin that pre-training writes into the backbone file of a recipe."""
    recipe = RECIPES[recipe_name]
    return {
        "method": recipe.method,
        "recipe": recipe_name,
        "table_row": recipe.table_row,
        "settings": flatten(asdict(recipe)),
        "batch_norm_groups": recipe.norm_groups or 8,
        "epochs": float(recipe.epochs),
        "data": DATA[re.split(r"[ ,]", recipe.images)[0]],
    }


RECIPES_OF_ROWS = [name for name in published_recipes() if name in RECIPES]
"""Recipes of published rows, without the names of weights that nobody trains here."""


def model(name: str, *, declared: bool = False, arch: str = "", **changes: Any) -> Backbone:
    """Return the backbone of a recipe, as recorded or as declared."""
    origin = {} if declared else made_by(name) | changes
    backbone = {"name": "mine", "sha256": "a" * 64, "stem": "imagenet", "made_by": origin}
    backbone["arch"] = arch or exported_arch(RECIPES[name])
    return backbone_of(backbone, name if declared else "")


def models() -> list[Backbone]:
    """Return all recipes, recorded and declared, and probes on some heads."""
    result = [
        model(name, declared=message) for name in RECIPES_OF_ROWS for message in (True, False)
    ]
    rows = [row for table in TABLES for row in table.rows if row.heads]
    return result + [
        model(row.recipe, arch=row.pretrain.arch or "", heads=list(row.heads)) for row in rows
    ]


@pytest.fixture
def some_result(tmp_path: Path) -> Run:
    record(tmp_path, 50.0)
    return read_results(tmp_path).succeeded[0]


def pairs_in(table: Table, mine: Backbone, some_result: Run) -> Sequence[Pair]:
    """Compare a backbone with every number of the table under each protocol."""
    metrics: dict[tuple[str, str], dict[str, float]] = {}
    for row in table.rows:
        for column in table.columns:
            task = row.task or column.task
            for name in {column.protocol, row.protocol, *row.protocols.values()} - {""}:
                for member in transfer_tasks() if task == AVERAGE else (task,):
                    metrics.setdefault((member, f"{name}/1"), {})[column.metric] = 50.0
    results = [
        some_result._replace(
            backbone=mine, task=task, protocol=protocol, metrics=numbers, file=f"{i}"
        )
        for i, ((task, protocol), numbers) in enumerate(metrics.items())
    ]
    return [pair for pair in pairs_of(numbers_of(results)) if pair.printed.table is table]


def test_a_recipe_is_compared_with_its_own_rows_alone(some_result: Run) -> None:
    declared: set[tuple[str, str, int]] = set()
    for mine in models():
        name = mine.recipe
        ours = {
            (table.id, number)
            for table in TABLES
            for number, row in enumerate(table.rows)
            if name in (row.recipe, *row.beside) and set(row.heads) == set(mine.heads)
        }
        result = {
            (table.id, table.rows.index(pair.printed.row))
            for table in TABLES
            for pair in pairs_in(table, mine, some_result)
        }
        assert result == ours, name
        if not mine.heads:
            assert {table for table, _ in result} == tables_of(RECIPES[name]), name
        declared |= {(name, *location) for location in result if mine.declared}
    assert (len(RECIPES_OF_ROWS), len(declared)) == (134, 157)


SHUFFLED = [name for name in RECIPES_OF_ROWS if hasattr(RECIPES[name].config, "bn_splits")]
"""Published recipes with shuffled batch norm."""


def test_rows_and_recipes_state_equal_norm_groups() -> None:
    for table in (table for paper in papers() for table in paper.tables):
        for row in (row for row in (*table.rows, *table.points) if row.recipe):
            groups = row.pretrain.norm_groups
            if row.recipe in SHUFFLED:
                assert groups in (0, RECIPES[row.recipe].norm_groups), (table.id, row.label)
            else:
                assert groups is None, (table.id, row.label)
    for name in SHUFFLED:
        assert published_recipes()[name].norm_groups == RECIPES[name].norm_groups, name


@pytest.mark.parametrize(
    ("name", "groups", "compared"),
    [
        ("jcl/in1k-r50", 8, True),
        ("jcl/in1k-r50", 4, False),
        ("jcl/in1k-r50", 1, False),
        ("co2/in1k-r50-v2", 4, True),
        ("co2/in1k-r50-v2", 8, False),
        ("looc/in100-r50-color", 2, True),  # its paper does not say
        ("looc/in100-r50-color", 1, False),
        ("lorac/in100-r18", 4, True),
        ("simclr/in100-r50", 1, True),  # nothing is shuffled
    ],
)
def test_a_run_is_compared_if_it_has_the_papers_groups_however_they_are_split(
    some_result: Run, name: str, groups: int, compared: bool
) -> None:
    split = {"config.bn_splits": groups} if name in SHUFFLED else {}
    mine = model(name, batch_norm_groups=groups, changed=split)
    pairs = (pair for table in TABLES for pair in pairs_in(table, mine, some_result))
    result = {pair.printed.row.recipe for pair in pairs}
    assert result == ({name} if compared else set())


UNJUDGED = {
    "jcl/table1": 2,
    "jcl/table2": 18,
    "co2/table1": 5,
    "co2/table2": 2,
    "co2/table3": 16,  # SVM of MoCo v2 is the paper's own
    "lorac/table1": 15,
    "lorac/table4": 18,
    "uniclr/table2": 14,
    "uniclr/table3": 12,
    "looc/table3": 6,  # d >= 3
    "looc/table7": 4,
    "ressl/reproductions": 4,
    "nnclr/reproductions": 3,
}
"""Numbers without a verdict by table, over all recipes.

Two readings count twice.
"""


def test_numbers_that_a_paper_cites_or_leaves_open_have_no_verdict(some_result: Run) -> None:
    result: Counter[str] = Counter()
    for name in RECIPES_OF_ROWS:
        for table in TABLES:
            pairs = pairs_in(table, model(name), some_result)
            result[table.id] += sum(bool(item.row.no_verdict(item.column)) for _, item, *_ in pairs)
    assert result == Counter(UNJUDGED)
    # and no stand-in for textures is compared
    textured = [name for name in RECIPES_OF_ROWS if RECIPES[name].views.texture_probability]
    assert len(textured) == 8
    for name in textured:
        mine = model(name, texture="randconv_luma")
        assert not [pair for table in TABLES for pair in pairs_in(table, mine, some_result)]


def test_the_page_states_the_groups_of_shuffled_batch_norm(tmp_path: Path) -> None:
    origin = {"arch": "resnet50", "protocol": "jcl-2020/1"}
    for groups, name in ((8, "eight"), (2, "two")):
        created = made_by("jcl/in1k-r50") | {"batch_norm_groups": groups}
        record(tmp_path, 68.9, task="in1k_linear", backbone=name, made_by=created, **origin)
    text = page(tmp_path, "jcl_table1.md")
    assert "8 (MoCo, MoCo v2, JCL)" in text
    assert "→ eight | JCL" in text
    assert re.search(r"two: no verdict: .*groups of shuffled batch norm 8, ours 2", text)
    assert "2 groups of shuffled batch norm" in text
    silent = page(tmp_path, "looc_table1.md")
    assert re.search("paper does not state the number of groups .* LooC", silent)
    stated = page(tmp_path, "stated.md")
    assert re.search(
        r"Figure 2\(a\).*paper does not state the number of groups .* moco, co2\.", stated
    )
    assert re.search(r"\n- text: Groups of shuffled batch norm, one per GPU: 4 \(moco\)", stated)


def test_the_page_says_why_a_number_has_no_verdict(tmp_path: Path) -> None:
    for table, recipe, task, metric, reason in [
        ("lorac_table1", "swav/in1k-r50-3x224-5x96", "in1k_linear", "top1", "no probe for SwAV"),
        ("uniclr_table3", "dino/in100-r50", "in100_linear", "top1", "who trained and"),
        ("looc_table3", "moco/in100-r50", "imagenet_c100_eval", "sev3plus_top1", "how many"),
    ]:
        protocols = {"looc": "looc-2020/1", "uniclr": "uniclr-2022/1", "lorac": "lorac-2021/1"}
        protocol = protocols[table.partition("_")[0]]
        origin = {"made_by": made_by(recipe), "arch": exported_arch(RECIPES[recipe])}
        record(tmp_path, 50.0, task=task, protocol=protocol, metric=metric, **origin)
        text = page(tmp_path, f"{table}.md").split("## Differences from the paper")[1]
        assert re.search(r"→ mine .*\| 50.00 \|.* no verdict ", text)
        assert re.search(rf"^- no verdict \((MoCo|DINO|SwAV)\): .*{reason}", text, re.MULTILINE)


def test_a_cited_number_stands_under_the_protocol_of_its_source(tmp_path: Path) -> None:
    moco = made_by("moco/in1k-r50-v1")
    seg = {"task": "voc12_seg_fcn", "metric": "mIoU", "made_by": moco}
    record(tmp_path, 72.4, protocol="moco-2020/1", **seg)
    record(tmp_path, 72.7, protocol="co2-2021/1", **seg)
    text = page(tmp_path).split("## Differences from the paper")[1]
    assert re.search(
        r"MoCo \(He et al., 2020\) +\| mIoU +\| 72.40 \| +72.5 \| +-0.10 \| .* no verdict", text
    )
    assert re.search(
        r"\(our impl.\) +\| mIoU +\| 72.70 \| +72.6 \| +\+0.10 \| .* inconclusive", text
    )
    assert not re.search(r"72.40 \| +72.6|72.70 \| +72.5", text)


def test_another_reading_of_a_row_is_compared_with_a_remark(tmp_path: Path) -> None:
    recipe = "simtrace/in1k-r50-multicrop"
    probe = {"task": "in1k_linear", "protocol": "uniclr-2022/1"}
    record(tmp_path, 68.0, made_by=made_by(recipe), **probe)
    text = page(tmp_path, "uniclr_table2.md")
    compared, missing = text.split("## Differences from the paper")[1].split("## Missing rows")
    (line,) = re.findall(r"^- → mine is not a run of the printed row .*$", compared, re.MULTILINE)
    (row,) = (row for table in TABLES for row in table.rows if recipe in row.beside)
    assert recipe in line
    assert row.beside[recipe] in line
    assert re.search(r"→ mine \| .* \| 68.00 \|", compared)
    assert f"needs pre-training `{row.recipe}`" in missing


# implementations differ by a point, so the interval may reach 3 points from 0
@pytest.mark.parametrize(("score", "verdict"), [(81.0, "inconclusive"), (82.4, "reproduced")])
def test_published_weights_get_the_verdict_of_their_own_row_alone(
    score: float, verdict: str, tmp_path: Path
) -> None:
    linear = {"task": "voc12_seg_linear", "protocol": "dinov2-2023/1"}
    for name, declared in (("mine", "dinov2/lvd142m-vitb14"), ("other", "")):
        record(
            tmp_path,
            score,
            backbone=name,
            sha256=name * 16,
            content={"declared": declared},
            **linear,
        )
    text = page(tmp_path, "dense_linear.md")
    compared = [line for line in text.splitlines() if "→ mine" in line and "82.5" in line]
    assert len(compared) == 1, text
    assert str(score) in compared[0]
    assert verdict in compared[0]
    assert not [line for line in text.splitlines() if "→ other" in line and "82.5" in line]
    assert "needs the published weights `dinov2_vits14_pretrain.pth`" in text
    assert "needs the published weights `dinov2_vitb14_pretrain.pth`" not in text


def test_a_column_shows_only_the_protocol_that_it_names(tmp_path: Path) -> None:
    for score, name in ((8.0, "hummingbird-2023-100k"), (9.0, "hummingbird-2023-1m")):
        record(tmp_path, score, task="voc12_seg_incontext", protocol=f"{name}/1")
    text = page(tmp_path, "dense_incontext.md")
    (row,) = [line for line in text.splitlines() if "→ mine" in line]
    assert [cell.strip() for cell in row.split("|")[3:6]] == ["8.0", "9.0", "not run"]
