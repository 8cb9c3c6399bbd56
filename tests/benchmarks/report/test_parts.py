"""Parts of the report: charts, numbers by class, pictures, logs; foreign details."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report_parts.charts import Chart, line_charts, svg
from benchmarks.report_parts.document import Fold, Gallery, Sheet
from benchmarks.report_parts.page import report_page
from benchmarks.report_parts.pretraining import pretraining_parts
from benchmarks.report_parts.tasks import task_folds
from benchmarks.results.contents import read_contents
from benchmarks.results.published import transfer_tasks
from tests.benchmarks.report.complete_records import HOSTILE, LORAC, backbone, complete
from transfer.galleries.tile import Tile, gallery_folder, update_gallery
from transfer.record import RECORDS, SNAPSHOTS

TASK = transfer_tasks()[0]
SEARCH = Chart(title="Search", x="rate", y="accuracy", series={}, log_x=True)
NUMBERS = ((1.0, 1.0), (2.0, 2.0))


def test_name_has_one_color_in_all_charts_of_a_section() -> None:
    series = {"a": ((0.1, 1.0), (1.0, 3.0), (10.0, 2.0))}
    (chart,) = line_charts([replace(SEARCH, series=series, marked={"a": 1})])
    assert "currentColor" in svg(chart)
    assert ">0.1</text>" in svg(chart)
    assert svg(chart).count("<circle") == 1
    assert not re.search(r"(href|src)=", svg(chart))
    names = list("abcdefghi")
    variants = [
        replace(SEARCH, series=dict.fromkeys(names[:8], NUMBERS)),
        replace(SEARCH, series={"a": ()} | dict.fromkeys(names[4:], NUMBERS)),
    ]
    looks: dict[str, set[tuple[str, str]]] = {}
    for chart in line_charts(variants):
        for name, look in chart.looks.items():
            looks.setdefault(name, set()).add(look)
    assert [len(ours) for ours in looks.values()] == [1] * 9
    assert len(set.union(*looks.values())) == 9


def test_a_single_point_has_numbers_on_both_axes() -> None:
    (chart,) = line_charts([Chart(title="Rate", x="epoch", y="", series={"a": [(1.29, 0)]})])
    assert "nan" not in svg(chart)
    assert [">1.5</text>" in svg(chart), ">0.06</text>" in svg(chart)] == [True, True]


def test_labels_of_near_values_do_not_overlap() -> None:
    series = {name: [(x, 1.0)] for name, x in (("a", 3.37), ("b", 3.38), ("c", 23.5))}
    (chart,) = line_charts([Chart(title="Size", x="", y="", series=series, log_x=True)])
    assert [f">{x}</text>" in svg(chart) for x in (3.37, 3.38, 23.5)] == [True, False, True]


def folds_of(results: Path) -> list[Fold]:
    contents = read_contents(results)
    return task_folds(results, contents.numbers, contents.snapshots)


def views(results: Path) -> list[Fold]:
    """The views of one task that has several."""
    (fold,) = folds_of(results)
    return [part for part in fold.parts if isinstance(part, Fold)]


def sheets_of(fold: Fold) -> dict[str, list[list[str]]]:
    """Texts of the cells of a fold's tables."""
    result = [part for part in fold.parts if isinstance(part, Sheet)]
    return {
        item.title: [[cell.text for cell in row] for row in item.grid.cells()] for item in result
    }


def sheets(results: Path) -> dict[str, list[list[str]]]:
    (fold,) = folds_of(results)
    return sheets_of(fold)


def charts(results: Path) -> list[Chart]:
    return [part for fold in folds_of(results) for part in fold.parts if isinstance(part, Chart)]


def galleries(results: Path) -> list[Gallery]:
    return [part for fold in folds_of(results) for part in fold.parts if isinstance(part, Gallery)]


def test_a_search_leaves_out_what_diverged(tmp_path: Path) -> None:
    rates = {"0.1": 40.0, "1.0": 50.0, "10.0": -1.0}
    details = {"val_accuracy": rates, "learning_rate": 1.0}
    complete(tmp_path, "mine", TASK, details=details)
    (chart,) = charts(tmp_path)
    assert chart.title == "Search over the learning rate"
    assert chart.note.startswith("Ring")
    assert "Diverged (not shown): 1." in chart.note


def test_classes_are_sorted_by_the_best_checkpoint_and_compared(tmp_path: Path) -> None:
    pairs = [{"class": HOSTILE, "taken_for": "cat", "images": 3, "of": 9}]
    details: dict[str, Any] = {"accuracy_per_class": {"cat": 20.0, "dog": 60.0}}
    complete(tmp_path, "mine", TASK, details=details | {"most_confused": pairs})
    assert sheets(tmp_path)["Accuracy by class"] == [
        ["class", "mine"],
        ["dog", "60.0"],
        ["cat", "20.0"],
    ]
    assert sheets(tmp_path)["Most confused classes: mine"][1][1:] == ["cat", "3", "9"]
    assert HOSTILE not in report_page(read_contents(tmp_path), [])
    complete(tmp_path, "other", TASK, details={"accuracy_per_class": {"cat": 50.0, "dog": 60.0}})
    head, *rows = sheets(tmp_path)["Accuracy by class"]
    assert head == ["class", "mine", "other", "first minus second"]
    assert rows == [["dog", "60.0", "60.0", "0.0"], ["cat", "20.0", "50.0", "-30.0"]]


def test_classes_of_two_readings_are_not_compared(tmp_path: Path) -> None:
    details = {"accuracy_per_class": {"cat": 20.0, "dog": 60.0}}
    for name, reading in (("a", "co2"), ("a", "lorac"), ("b", "lorac")):
        key = f"in1k_semi_1pct@{reading}"
        request = {"task": key, "backbone": [], "options": [], "input": {}}
        names = {"name": f"{reading}-2021/1", "hash": "paper", "paper_hash": "paper"}
        changes: dict[str, Any] = {"request": request, "protocol": {**names, "fields": {}}}
        entry = backbone(name)
        complete(tmp_path, name, "in1k_semi_1pct", details=details, backbone=entry, **changes)
    of_co2, of_lorac = views(tmp_path)
    assert [of_co2.name, of_lorac.name] == [
        f"in1k_semi_1pct@{reading}: Paper schedule, full data" for reading in ("co2", "lorac")
    ]
    assert sheets_of(of_co2)["Accuracy by class"][0] == ["class", "a"]
    assert sheets_of(of_lorac)["Accuracy by class"][0][1:] == ["a", "b", "first minus second"]


def test_a_checkpoint_is_not_compared_with_itself(tmp_path: Path) -> None:
    for number, accuracy in enumerate((20.0, 30.0)):
        for changes in ({"seed": number}, {"engine": "other"}, {"schedule": "smoke"}):
            details = {"accuracy_per_class": {"cat": accuracy}}
            complete(tmp_path, "mine", TASK, details=details, **changes)
    tables = [sheets_of(view)["Accuracy by class"] for view in views(tmp_path)]
    assert tables == [[["class", "mine"], ["cat", mean]] for mean in ("25.0", "30.0")]


def test_charts_draw_one_line_for_each_checkpoint(tmp_path: Path) -> None:
    details = {"val_accuracy": {"0.1": 40.0, "1.0": 50.0}}
    for seed in (0, 1):
        complete(tmp_path, "mine", TASK, seed, details=details)
        complete(tmp_path, "other", TASK, seed, details=details, backbone=backbone("other"))
    (chart,) = charts(tmp_path)
    assert [*chart.looks] == ["mine, seed 0", "other, seed 0"]


def tile(size: int = 0, caption: str = HOSTILE, group: str = "found") -> Tile:
    return Tile(jpeg=b"\xff\xd8\xff" + bytes(size), group=group, caption=caption, name="a.jpg")


def test_only_pictures_next_to_a_record_are_embedded(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK)
    (result,) = read_contents(tmp_path).results.succeeded
    path = tmp_path / result.file
    update_gallery(path, lambda: [tile(), tile()], finished=result.record.finished)
    folder = gallery_folder(path)
    (folder / "01.jpg").write_text("<svg onload=alert(1)>")  # not a JPEG
    (image,) = galleries(tmp_path)[0].images
    assert image.source == "data:image/jpeg;base64,/9j/"
    page = report_page(read_contents(tmp_path), [])
    assert image.source in page
    assert HOSTILE not in page
    (tmp_path / "secret.jpg").write_bytes(b"\xff\xd8\xffsecret")
    captions = folder / "captions.jsonl"
    captions.write_text(captions.read_text().replace("00.jpg", str(tmp_path / "secret.jpg")))
    assert folds_of(tmp_path) == []


def test_pictures_of_an_older_record_are_not_shown(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK)
    (result,) = read_contents(tmp_path).results.succeeded
    path = tmp_path / result.file
    update_gallery(path, lambda: [tile()], finished=result.record.finished)
    assert galleries(tmp_path)
    update_gallery(path, lambda: [tile()], finished="2025-01-01T00:00:00Z")
    assert folds_of(tmp_path) == []


def test_logs_are_read_up_to_a_torn_line(tmp_path: Path) -> None:
    lines = [{"step": i, "epoch": i / 2, "loss": 4.0 - i, "learning_rate": 0.1} for i in (1, 2)]
    log = tmp_path / "run" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "lo')
    text, *result = pretraining_parts(tmp_path, [tmp_path, tmp_path / "absent"])
    assert [chart.title for chart in result if isinstance(chart, Chart)] == [
        "Loss",
        "Learning rate",
    ]
    assert "**run**: step 2, epoch 1.00, loss 2" in str(text)
    assert "absent**: no metrics.jsonl" in str(text)


def test_accuracy_is_drawn_against_the_size_of_unlike_networks(tmp_path: Path) -> None:
    for name, millions in (("small", 11), ("large", 23)):
        entry = backbone(name, num_parameters=millions * 1_000_000)
        complete(tmp_path, name, TASK, backbone=entry)
    assert [chart.title for chart in charts(tmp_path)] == ["Accuracy against parameters"]
    complete(tmp_path, "large", TASK, backbone=entry | {"num_parameters": 11_000_000})
    assert folds_of(tmp_path) == []  # networks of one size


def test_page_sums_hours_and_embeds_safe_figures(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK, wall_s=7200.0)
    complete(tmp_path, "mine", TASK, 1, wall_s=3600.0)
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "jcl_figure2a.svg").write_text("<svg><script>alert(1)</script></svg>")
    page = report_page(read_contents(tmp_path), [])
    assert "2 results in 3.00 hours." in page
    assert 'alt="JCL, Figure 2(a)"' in page
    assert "data:image/svg+xml;base64," in page
    assert "alert(1)" not in page


def test_page_is_below_the_size_limit(tmp_path: Path) -> None:
    image = {"class": "cat", "file": "a", "jpeg_base64": "/9j/" + "A" * 200_000}
    details = {"queries": [image | {"neighbors": [image] * 3}] * 6}
    for task in transfer_tasks()[:3]:
        complete(tmp_path, "mine", task, details=details)
    for result in read_contents(tmp_path).results.succeeded:
        path, finished = tmp_path / result.file, result.record.finished
        update_gallery(path, lambda: [tile(24_000)] * 12, finished=finished)
    run = tmp_path / "run"
    for folder in (tmp_path / "figures", run):
        folder.mkdir()
    for name in ("jcl_figure2a", "jcl_figure2b", "jcl_figure2c", "co2_figure2a", "co2_figure3"):
        (tmp_path / "figures" / f"{name}.svg").write_text(" " * 900_000)
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    (run / "views.jpg").write_bytes(b"\xff\xd8\xff" + bytes(200_000))
    page = report_page(read_contents(tmp_path), [run])
    assert 5_000_000 < len(page.encode()) <= 9_500_000
    assert page.count("more are omitted to limit the size") > 1


def snapshot(results: Path, epoch: int, **changes: Any) -> None:
    """Write the record of a snapshot of the run "jcl"."""
    entry = backbone(f"jcl@{epoch}", made_by=LORAC | {"epochs": float(epoch)})
    complete(results / RECORDS / SNAPSHOTS, entry["name"], TASK, backbone=entry, **changes)


def test_snapshots_have_a_line_per_engine(tmp_path: Path) -> None:
    for epoch in (1, 2):
        snapshot(tmp_path, epoch)
        snapshot(tmp_path, epoch, schedule="smoke")
        snapshot(tmp_path, epoch, engine="other")
    paper, smoke = views(tmp_path)
    assert "Smoke schedule" in smoke.name
    names = [
        [*part.looks] for view in (paper, smoke) for part in view.parts if isinstance(part, Chart)
    ]
    assert names == [["jcl", "jcl (engine other)"], ["jcl"]]


def test_task_of_a_plugin_is_shown_with_its_names(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"metrics": {"zap": 12.5}, "primary_metric": "zap"}
    changes["details"] = {"accuracy_per_class": {HOSTILE: 1.0, "猫 ☃\u202e": 2.0}}
    complete(tmp_path, "Ünïcode ☃ 名前", "no_such_task", heading="Strange", **changes)
    page = report_page(read_contents(tmp_path), [])
    assert "no_such_task" in page
    assert "Ünïcode ☃ 名前" in page
    assert "猫 ☃" in page
    assert HOSTILE not in page
