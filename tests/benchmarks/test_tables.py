"""The pages beside the papers, from synthetic result files."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.against import stands_for
from benchmarks.published import published_table
from benchmarks.suites import TRANSFER, primary_metric
from benchmarks.tables import write_tables
from benchmarks.verdict import verdict

LORAC = {"method": "lorac", "recipe": "lorac/in1k-r50", "epochs": 200.0, "data": "in1k"}


def put(folder: Path, name: str, content: dict[str, Any]) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def record(results: Path, score: float, **changes: Any) -> None:
    """A comparable record of voc07_svm, except for what changes."""
    cell: dict[str, Any] = {
        "backbone": "mine",
        "sha256": "a" * 64,
        "arch": "resnet50",
        "made_by": {},
        "task": "voc07_svm",
        "metric": "",
        "protocol": "co2-2021/1",
        "hash": "paper",
        "schedule": "paper",
        "seed": 0,
        "engine": "batched",
        "small": "",
        "fingerprint": "f",
        "tolerated": 0,
        "departures": [],
    } | changes
    stem = f"{cell['task']}.{cell['protocol'].replace('/', '-')}"
    put(
        results / cell["backbone"],
        f"{stem}.{cell['schedule']}.{cell['hash']}.seed{cell['seed']}.json",
        {
            "format": "ssl-record/1",
            "backbone": {
                "name": cell["backbone"],
                "arch": cell["arch"],
                "stem": "imagenet",
                "sha256": cell["sha256"],
                "source": "",
                "made_by": cell["made_by"],
            },
            "task": cell["task"],
            "protocol": {"name": cell["protocol"], "hash": cell["hash"], "paper_hash": "paper"},
            "schedule": cell["schedule"],
            "seed": cell["seed"],
            "engine": cell["engine"],
            "metrics": {cell["metric"] or primary_metric(cell["task"]): score},
            "data": {
                "set": {
                    "fingerprint": cell["fingerprint"],
                    "small": cell["small"],
                    "tolerated": cell["tolerated"],
                }
            },
            "departures": cell["departures"],
            "finished": "2026-01-01T00:00:00Z",
        },
    )


def failure(results: Path, task: str, reason: str, schedule: str = "paper") -> None:
    put(
        results / "mine",
        f"{task}.failed.json",
        {
            "format": "ssl-failure/1",
            "backbone": "mine",
            "task": task,
            "protocol": "lorac-2021/1" if task in TRANSFER else "co2-2021/1",
            "schedule": schedule,
            "seed": 0,
            "reason": reason,
        },
    )


def page(results: Path, name: str = "co2_table3.md") -> str:
    paths = {path.name: path for path in write_tables(results)}
    return paths[name].read_text()


def blocks(text: str) -> list[dict[str, list[str]]]:
    """The tables of a page: first cell -> other cells."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        lines = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()]
        found.append({line[0]: line[1:] for line in lines[2:]})
    return found


def transfer_records(results: Path, tasks: tuple[str, ...] = TRANSFER, **changes: Any) -> None:
    for number, task in enumerate(tasks):
        record(results, 50.0 + number, task=task, protocol="lorac-2021/1", **changes)


def test_a_page_has_the_papers_rows_in_order_then_ours(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    labels = [row.label for row in published_table("co2/table3").rows]
    assert list(blocks(page(tmp_path))[0]) == [*labels, "→ mine"]


def test_every_printed_number_is_on_the_page(tmp_path: Path) -> None:
    shown = blocks(page(tmp_path, "lorac_table2.md"))[0]
    for row in published_table("lorac/table2").rows:
        cells = [cell.strip("*") for cell in shown[row.label]]
        assert cells == [f"{value:.1f}" for value in row.values.values()]


def test_what_was_not_run_and_what_the_paper_lacks_are_told_apart(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    rows = blocks(page(tmp_path))[0]
    assert rows["→ mine"] == ["86.0", "not run", "not run", "not run", "not run"]
    assert rows["MoCo (He et al., 2020)"][0] == "–"


@pytest.mark.parametrize(("score", "shown"), [(88.5, "88.5"), (88.6, "**88.6**")])
def test_the_best_is_bold_only_beyond_the_tolerance(
    tmp_path: Path, score: float, shown: str
) -> None:
    record(tmp_path, score)  # the paper's best is 88.0, the tolerance 0.5
    assert blocks(page(tmp_path))[0]["→ mine"][0] == shown


def test_a_spread_over_seeds_wider_than_the_lead_takes_the_bold_away(tmp_path: Path) -> None:
    for seed, score in enumerate((87.0, 89.0, 91.0)):
        record(tmp_path, score, seed=seed)
    text = page(tmp_path)
    assert blocks(text)[0]["→ mine"][0] == "89.0 ± 2.0"
    assert "3 runs, seeds 0, 1, 2" in text


@pytest.mark.parametrize(
    ("changes", "heading"),
    [
        ({"schedule": "smoke", "hash": "short"}, "Smoke schedule"),
        ({"small": "generated"}, "Generated data"),
        ({"tolerated": 2}, "Incomplete data"),
        ({"hash": "other"}, "Altered protocol"),
        ({"protocol": "co2-2021-11point/1"}, "Protocol co2-2021-11point"),
    ],
)
def test_what_leaves_the_paper_stands_below_its_table(
    tmp_path: Path, changes: dict[str, Any], heading: str
) -> None:
    record(tmp_path, 99.0, **changes)
    text = page(tmp_path)
    assert f"## {heading}: not comparable with the rows above" in text
    above, below = blocks(text)
    assert "→ mine" not in above
    assert below["→ mine"][0] == "99.0"


def test_different_protocol_hashes_never_share_a_column(tmp_path: Path) -> None:
    for backbone, digest in (("one", "x"), ("two", "x"), ("three", "y")):
        record(tmp_path, 50.0, backbone=backbone, hash=digest, schedule="smoke")
    rows = [set(block) for block in blocks(page(tmp_path))[1:]]
    assert sorted(rows, key=len) == [{"→ three"}, {"→ one", "→ two"}]


def test_different_generated_data_never_share_a_column(tmp_path: Path) -> None:
    for backbone, data in (("one", "x"), ("two", "y")):
        record(tmp_path, 50.0, backbone=backbone, small="generated", fingerprint=data)
    assert [len(block) for block in blocks(page(tmp_path))[1:]] == [1, 1]


def test_readings_of_other_papers_stay_out_of_a_papers_table(tmp_path: Path) -> None:
    record(tmp_path, 77.7, task="in100_linear", protocol="jcl-2020/1")
    assert "→ mine" not in page(tmp_path, "lorac_table5.md")
    assert "→ mine" in page(tmp_path, "jcl_imagenet100.md")


def test_two_backbones_of_one_name_are_told_apart_by_their_weights(tmp_path: Path) -> None:
    record(tmp_path, 86.0, sha256="a" * 64)
    record(tmp_path, 80.0, sha256="b" * 64, seed=1)
    text = page(tmp_path)
    assert re.search(r"→ mine \(aaaaaaaa\) ¹ +\| +86.0 ", text)
    assert re.search(r"→ mine \(bbbbbbbb\) ² +\| +80.0 ", text)


def test_the_average_of_twelve_sets_is_unweighted(tmp_path: Path) -> None:
    transfer_records(tmp_path)  # 50, 51, ... 61
    assert blocks(page(tmp_path, "lorac_table2.md"))[0]["→ mine"][-1] == "55.5"


def test_an_average_with_a_missing_member_is_not_told(tmp_path: Path) -> None:
    transfer_records(tmp_path, TRANSFER[:-1])
    failure(tmp_path, TRANSFER[-1], "DataError: no folder sun397")
    text = page(tmp_path, "lorac_table2.md")
    assert blocks(text)[0]["→ mine"][-2:] == ["failed ¹", "– (11 of 12)"]
    assert "1. failed: DataError: no folder sun397" in text


def test_a_backbone_that_only_failed_has_a_row_with_the_reason(tmp_path: Path) -> None:
    failure(tmp_path, "voc07_svm", "MemoryError: out of memory", schedule="smoke")
    text = page(tmp_path)
    assert blocks(text)[1]["→ mine"][0] == "failed ¹"
    assert "1. failed: MemoryError: out of memory" in text


def test_a_note_of_every_number_is_said_once_and_one_of_some_is_numbered(tmp_path: Path) -> None:
    shared, special = "crop_px 64 instead of 224", "steps 3 instead of 5000"
    transfer_records(tmp_path, TRANSFER[:2], schedule="smoke", departures=[shared])
    record(
        tmp_path,
        40.0,
        task=TRANSFER[2],
        protocol="lorac-2021/1",
        schedule="smoke",
        departures=[shared, special],
    )
    text = page(tmp_path, "lorac_table2.md")
    assert text.count(shared) == 1
    assert f"1. {special}" in text
    assert blocks(text)[1]["→ mine"][:3] == ["50.0", "51.0", "40.0 ¹"]


def test_uniclr_table_3_takes_our_row_into_the_block_of_its_data_set(tmp_path: Path) -> None:
    record(tmp_path, 66.0, task="cifar100_linear", protocol="uniclr-2022/1", arch="resnet18")
    lines = [line for line in page(tmp_path, "uniclr_table3.md").splitlines() if "|" in line]
    place = next(i for i, line in enumerate(lines) if "*ImageNet-100*" in line)
    assert "→ mine" in lines[place - 1]
    assert "66.00" in lines[place - 1]


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    transfer_records(tmp_path)
    transfer_records(tmp_path, schedule="smoke", backbone="other")
    first = {path: path.read_bytes() for path in write_tables(tmp_path)}
    assert {path: path.read_bytes() for path in write_tables(tmp_path)} == first


def test_a_torn_file_is_a_warning_below_the_overview(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    (tmp_path / "mine" / "torn.json").write_text('{"format": "ssl-rec')
    put(tmp_path / "mine", "foreign.json", {"format": "ssl-record/9"})
    (tmp_path / "mine" / "list.json").write_text("[1]")
    text = page(tmp_path, "overview.md")
    assert text.count("- warning: mine/") == 3
    assert "86.0" in text


def test_the_overview_has_a_part_per_schedule(tmp_path: Path) -> None:
    record(tmp_path, 86.0)
    record(tmp_path, 20.0, schedule="smoke", hash="s", small="generated")
    text = page(tmp_path, "overview.md")
    assert "## Paper schedule, full data" in text
    assert "## Smoke schedule, generated data" in text


def test_protocols_have_columns_of_their_own_in_the_overview(tmp_path: Path) -> None:
    for protocol, score in (("jcl-2020/1", 60.0), ("looc-2020/1", 70.0)):
        record(tmp_path, score, task="in100_linear", protocol=protocol)
    text = page(tmp_path, "overview.md")
    assert re.search(r"in100 jcl-2020 \| +in100 looc-2020 \|", text)
    assert blocks(text)[0]["mine"] == ["60.0", "70.0"]


def test_the_same_pretraining_is_compared_with_the_paper(tmp_path: Path) -> None:
    record(tmp_path, 47.5, task=TRANSFER[0], protocol="lorac-2021/1", made_by=LORAC)
    text = page(tmp_path, "lorac_table2.md")
    lines = [[c.strip() for c in line.split("|")] for line in text.splitlines()]
    compared = next(line for line in lines if len(line) == 10 and line[1] == "→ mine")
    assert compared[2:8] == ["LORAC", "Aircraft", "47.50", "47.8", "-0.30", "pass"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"method": "byol"}, "no published counterpart: the table has no row of byol"),
        ({"epochs": 2.0}, "epochs 200, ours 2"),
        ({"data": "in1k (5000 images)"}, "data in1k, ours in1k (5000 images)"),
        ({"changed": {"batch_size": 8}}, "ours left its recipe in batch_size"),
    ],
)
def test_another_pretraining_gets_no_verdict(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    record(tmp_path, 47.5, task=TRANSFER[0], protocol="lorac-2021/1", made_by=LORAC | changes)
    text = page(tmp_path, "lorac_table2.md")
    assert said in text
    assert "| verdict |" not in text


def test_a_recipe_of_moco_v2_is_not_held_against_moco_v1(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco-v2/in1k-r50", "epochs": 200, "data": "in1k"}
    record(tmp_path, 79.7, made_by=moco)
    text = page(tmp_path).split("## Against the paper")[1]
    assert re.search(r"→ mine \| MoCo v2 \(Chen.*\| 79.70 \| +85.0 \| -5.30 \| +fail", text)


def test_lorac_moco_row_is_compared_under_its_own_reading_of_the_probe(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco-v2/in100-r18", "epochs": 100, "data": "in100"}
    probe = {"task": "in100_linear", "protocol": "lorac-2021-moco/1", "arch": "resnet18"}
    record(tmp_path, 66.0, made_by=moco, **probe)
    text = page(tmp_path, "lorac_table5.md")
    assert re.search(r"→ mine \| MoCo-v2 +\| Top-1 +\| 66.00 \| +65.3 \| +\+0.70 \| +warn", text)


@pytest.mark.parametrize(
    ("difference", "said"), [(0.3, "pass"), (-0.3, "pass"), (0.6, "warn"), (-0.61, "fail")]
)
def test_coco_is_held_to_the_spread_of_its_reruns(difference: float, said: str) -> None:
    assert verdict(difference, "coco_det") == said


def test_raw_pages_have_straight_columns(tmp_path: Path) -> None:
    record(tmp_path, 99.0)
    for table in re.findall(r"(?:^\|.*\n)+", page(tmp_path), flags=re.MULTILINE):
        assert len({len(line) for line in table.splitlines()}) == 1


def test_words_of_a_reason_cannot_break_a_table_or_a_list(tmp_path: Path) -> None:
    failure(tmp_path, "voc07_svm", "ValueError: a|b\nsecond line")
    assert "1. failed: ValueError: a\\|b second line\n" in page(tmp_path)


def test_a_missing_results_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        write_tables(tmp_path / "nowhere")


def test_an_interrupted_write_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = page(tmp_path)
    record(tmp_path, 86.0)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_tables(tmp_path)
    assert [path.name for path in (tmp_path / "tables").glob(".*")] == []
    assert (tmp_path / "tables" / "co2_table3.md").read_text() == before


def test_a_stand_in_for_the_papers_textures_is_told_beside_its_numbers(tmp_path: Path) -> None:
    looc = {"method": "looc", "recipe": "looc/in100-r50-texture", "epochs": 500, "data": "in100"}
    record(tmp_path, 81.0, made_by=looc | {"texture": "randconv_luma"})
    assert "randconv_luma, a stand-in for style transfer: no reproduction" in page(tmp_path)


@pytest.mark.parametrize(
    ("table_row", "table", "stands"),
    [
        ("co2/table1-3: MoCo + CO2", "co2/table2", True),
        ("co2/table1, co2/table3: MoCo + CO2", "co2/table2", False),
        ("looc/table2: LooC++", "lorac/table2", False),
        ("lorac/fig3: beta 4", "lorac/table5", False),
    ],
)
def test_a_recipe_stands_for_the_tables_that_it_names(
    table_row: str, table: str, stands: bool
) -> None:
    assert stands_for(table_row, table) == stands


def test_a_point_of_a_figure_is_not_held_against_a_table(tmp_path: Path) -> None:
    sweep = {"method": "lorac", "recipe": "lorac/in100-r18-beta4", "epochs": 100, "data": "in100"}
    probe = {"task": "in100_linear", "protocol": "lorac-2021/1", "arch": "resnet18"}
    record(tmp_path, 66.0, made_by=sweep | {"table_row": "lorac/fig3: beta 4"}, **probe)
    assert "the recipe stands for lorac/fig3: beta 4" in page(tmp_path, "lorac_table5.md")


def test_methods_of_one_size_stand_in_one_table_with_the_initialization_first(
    tmp_path: Path,
) -> None:
    for method, top1 in (("jcl", 40.0), ("random", 30.0), ("moco", 39.0)):
        made_by = {"method": method, "recipe": f"{method}/cifar10-cpu", "epochs": 1}
        for task in ("cifar10_knn", "cifar10_linear"):
            probe = {"task": task, "protocol": "uniclr-2022/1", "arch": "resnet18"}
            record(tmp_path, top1, made_by=made_by, backbone=method, **probe)
    text = page(tmp_path, "methods.md")
    numbers = re.findall(r"^\| (\w+) +\| +\**([\d.]+).*?\| +\**([\d.]+)", text, re.MULTILINE)
    assert numbers == [
        ("random", "30.0", "30.0"),
        ("jcl", "40.0", "40.0"),
        ("moco", "39.0", "39.0"),
    ]


def test_one_method_alone_makes_no_page_of_methods(tmp_path: Path) -> None:
    made_by = {"method": "jcl", "recipe": "jcl/cifar10-cpu", "epochs": 1}
    record(tmp_path, 40.0, task="cifar10_knn", protocol="uniclr-2022/1", made_by=made_by)
    page(tmp_path, "overview.md")
    assert not (tmp_path / "tables" / "methods.md").exists()


COCO = {"task": "coco_det", "protocol": "jcl-2020/1", "engine": "torchvision"}
NOT_LOADED = "weights may not be loaded"


@pytest.mark.parametrize(("score", "doubted"), [(31.0, True), (33.0, True), (33.5, False)])
def test_a_detector_no_better_than_a_random_one_is_doubted(
    tmp_path: Path, score: float, doubted: bool
) -> None:
    record(tmp_path, score, **COCO)
    assert (NOT_LOADED in page(tmp_path, "jcl_table2.md")) == doubted


def test_so_is_a_segmentation(tmp_path: Path) -> None:
    voc = {"task": "voc12_seg_fcn", "protocol": "co2-2021/1"}
    random = {"backbone": "random", "made_by": {"method": "random initialisation"}}
    record(tmp_path, 45.0, **voc)
    record(tmp_path, 39.0, **voc, **random, sha256="b" * 64)
    assert "not more than 10 mIoU above a random" in page(tmp_path, "co2_table3.md")


def test_a_short_run_is_not_held_against_the_random_row(tmp_path: Path) -> None:
    record(tmp_path, 31.0, **COCO, schedule="short", hash="short")
    assert NOT_LOADED not in page(tmp_path, "jcl_table2.md")


def test_where_the_paper_has_no_random_row_ours_counts(tmp_path: Path) -> None:
    voc = {"task": "voc0712_det_c4", "protocol": "co2-2021/1"}
    random = {"backbone": "random", "made_by": {"method": "random initialisation"}}
    record(tmp_path, 34.0, **voc)
    assert NOT_LOADED not in page(tmp_path, "co2_table3.md")
    record(tmp_path, 33.8, **voc, **random, sha256="b" * 64)
    assert NOT_LOADED in page(tmp_path, "co2_table3.md")


def test_one_coco_run_fills_the_tables_of_both_papers(tmp_path: Path) -> None:
    record(tmp_path, 41.2, **COCO)
    for name in ("jcl_table2.md", "lorac_table4.md"):
        assert re.search(r"→ mine.*41\.2", page(tmp_path, name))


def test_moco_rows_of_lorac_table_1_are_compared_under_mocos_own_probe(tmp_path: Path) -> None:
    moco = {"method": "moco", "recipe": "moco/in1k-r50-v2", "epochs": 200, "data": "in1k"}
    record(tmp_path, 67.4, task="in1k_linear", protocol="moco-2020/1", made_by=moco)
    text = page(tmp_path, "lorac_table1.md")
    assert "## Protocol moco-2020: the paper's reading for MoCo-v1, MoCo-v2, MoCo-v2+\n" in text
    assert re.search(r"→ mine \| MoCo-v2 +\| Top-1 +\| 67.40 \| +67.5 \| +-0.10 \| +pass", text)


def test_co2_on_moco_v1_is_compared_under_its_own_weight_decay(tmp_path: Path) -> None:
    co2 = {"method": "co2", "recipe": "co2/in1k-r50-v1", "epochs": 200, "data": "in1k"}
    few = {"task": "in1k_semi_1pct", "made_by": co2}
    record(tmp_path, 66.0, protocol="co2-2021-v1/1", metric="top5", **few)
    record(tmp_path, 60.0, protocol="co2-2021/1", metric="top5", **few)
    text = page(tmp_path, "co2_table2.md").split("## Against the paper")[1]
    assert re.search(r"\| 66.00 \| +66.2 \| +-0.20 \| +pass", text)
    assert "60.00" not in text


def test_drawn_labels_stand_apart_from_the_published_list(tmp_path: Path) -> None:
    record(tmp_path, 60.0, task="in1k_semi_1pct", protocol="lorac-2021-drawn/1", hash="drawn")
    text = page(tmp_path, "lorac_table3.md")
    heading = "## Altered protocol, protocol lorac-2021-drawn: not comparable with the rows above"
    assert heading in text


@pytest.mark.parametrize(
    ("heads", "arch", "row"),
    [
        (["invariant", "color"], "resnet50-heads2", "79.7"),
        (["invariant", "texture"], "resnet50-heads2", "80.3"),
        (["invariant"], "resnet50", "78.5"),
        (None, "resnet50-heads4", "82.2"),
    ],
)
def test_heads_of_loocpp_find_their_row_of_table_5(
    tmp_path: Path, heads: list[str] | None, arch: str, row: str
) -> None:
    recipe = "loocpp/in100-r50-color-rotation-texture"
    made_by: dict[str, Any] = {"method": "loocpp", "recipe": recipe, "epochs": 500}
    made_by |= {"data": "in100"} | ({"heads": heads} if heads else {})
    probe = {"task": "in100_linear", "protocol": "looc-2020/1", "arch": arch}
    record(tmp_path, 80.0, made_by=made_by, **probe)
    text = page(tmp_path, "looc_table5.md").split("## Against the paper")[1]
    assert re.search(rf"→ mine \| LooC\+\+ +\| IN-100 top-1 +\| 80.00 \| +{row} ", text)


def test_two_heads_beside_the_invariant_one_are_no_row_of_table_5(tmp_path: Path) -> None:
    made_by = {"method": "loocpp", "recipe": "loocpp/in100-r50-x", "epochs": 500, "data": "in100"}
    heads = {"heads": ["invariant", "color", "texture"]}
    probe = {"task": "in100_linear", "protocol": "looc-2020/1", "arch": "resnet50-heads3"}
    record(tmp_path, 80.0, made_by=made_by | heads, **probe)
    assert "network resnet50-heads2, ours resnet50-heads3" in page(tmp_path, "looc_table5.md")


def test_what_nobody_pre_trained_is_named_with_its_recipe(tmp_path: Path) -> None:
    record(tmp_path, 47.5, task=TRANSFER[0], protocol="lorac-2021/1", made_by=LORAC)
    listed = page(tmp_path, "lorac_table2.md").split("## Rows to be made")[1]
    assert "- MoCo-M: needs pre-training `moco_m/in1k-r50`\n" in listed
    assert "LORAC: needs" not in listed


def test_a_shorter_pre_training_does_not_make_a_papers_row(tmp_path: Path) -> None:
    short = LORAC | {"epochs": 2.0}
    record(tmp_path, 47.5, task=TRANSFER[0], protocol="lorac-2021/1", made_by=short)
    text = page(tmp_path, "lorac_table2.md")
    assert "- LORAC: needs pre-training `lorac/in1k-r50`\n" in text


def test_an_interval_over_trials_stands_behind_a_mean(tmp_path: Path) -> None:
    record(tmp_path, 70.0, task="flowers102_fewshot", protocol="looc-2020/1")
    (path,) = (tmp_path / "mine").glob("*.json")
    content = json.loads(path.read_text())
    content["details"] = {"interval95": {"acc_5shot": 0.44}}
    path.write_text(json.dumps(content))
    text = page(tmp_path, "looc_table4.md")
    assert "70.0 ± 0.4" in blocks(text)[0]["→ mine"]
    assert "95 % interval over its trials" in text
