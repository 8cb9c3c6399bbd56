"""Parts of the page: charts, numbers by class, logs, hours, figures; foreign details."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.pages.published import transfer_tasks
from benchmarks.pages.records import Model
from benchmarks.report_parts.charts import Draft, line_charts
from benchmarks.report_parts.checkpoints import task_hours
from benchmarks.report_parts.contents import read_contents
from benchmarks.report_parts.galleries import figures
from benchmarks.report_parts.page import MOST_CHARACTERS, TaskPart, parts_by_task, report_page
from benchmarks.report_parts.pretraining import Log, loss_of, pretraining
from benchmarks.report_parts.task_charts import named_records
from tests.benchmarks.report.complete_records import HOSTILE, LORAC, backbone, complete
from transfer.galleries.tile import Tile, write_gallery
from transfer.record import RECORDS, SNAPSHOTS

TASK = transfer_tasks()[0]
SEARCH = Draft(title="Search", x="rate", y="accuracy", series={}, log_x=True, edges=True)
NUMBERS = ((1.0, 1.0), (2.0, 2.0))


def test_a_chart_has_the_colors_of_the_page_and_a_name_one_look_in_all_of_a_part() -> None:
    series = {"a": ((0.1, 1), (1, 3), (10, 2))}
    (chart,) = line_charts([replace(SEARCH, series=series, chosen={"a": 1})])
    assert "currentColor" in chart.svg
    assert "#010203" not in chart.svg
    assert "mathdefault" not in chart.svg
    assert re.search(r">\s*0\.1\s*</text>", chart.svg)
    assert not re.search(r'(href|src)="(?!#)', chart.svg)
    names = list("abcdefghi")
    drafts = [
        replace(SEARCH, series=dict.fromkeys(names[:8], NUMBERS)),
        replace(SEARCH, series={"a": ()} | dict.fromkeys(names[4:], NUMBERS)),
    ]
    looks: dict[str, set[tuple[str, str]]] = {}
    for chart in line_charts(drafts):
        for sign, color, name in chart.legend:
            looks.setdefault(name, set()).add((color, sign))
    assert [len(own) for own in looks.values()] == [1] * 9
    assert len(set.union(*looks.values())) == 9


def part_of(results: Path) -> TaskPart:
    (part,) = parts_by_task(read_contents(results))
    return part


def test_a_search_leaves_out_what_diverged_and_classes_are_sorted_by_the_best_backbone(
    tmp_path: Path,
) -> None:
    rates = {"0.1": 40.0, "1.0": 50.0, "10.0": -1.0}
    pairs = [{"class": HOSTILE, "taken_for": "cat", "images": 3, "of": 9}]
    details: dict[str, Any] = {"most_confused": pairs}
    details |= {"val_accuracy": rates, "learning_rate": 1.0}
    details |= {"accuracy_per_class": {"cat": 20.0, HOSTILE: 60.0}}
    complete(tmp_path, "mine", TASK, details=details)
    part = part_of(tmp_path)
    (chart,), (table,) = part.charts, part.tables
    assert chart.title == "Search over the learning rate"
    assert chart.note.startswith("Ring")
    assert "Diverged and left out: 1." in chart.note
    assert table.rows == ((HOSTILE, (60.0,)), ("cat", (20.0,)))
    assert part.confusions[0][1] == ((HOSTILE, "cat", 3, 9),)
    assert HOSTILE not in report_page(tmp_path)
    # of two checkpoints, classes are compared
    complete(tmp_path, "other", TASK, details={"accuracy_per_class": {"cat": 50.0, HOSTILE: 60.0}})
    _, apart = part_of(tmp_path).tables
    assert apart.rows == ((HOSTILE, (0.0,)), ("cat", (-30.0,)))
    assert apart.columns == ("mine minus other",)


def tile(size: int = 0, caption: str = HOSTILE, group: str = "found") -> Tile:
    return Tile(jpeg=b"\xff\xd8\xff" + bytes(size), group=group, caption=caption, name="a.jpg")


def test_pictures_beside_a_record_are_embedded_and_none_from_elsewhere(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK)
    (result,) = read_contents(tmp_path).results.done
    folder = write_gallery(tmp_path / result.file, [tile(), tile()])
    (folder / "01.jpg").write_text("<svg onload=alert(1)>")  # no JPEG
    (picture,) = part_of(tmp_path).galleries[0].pictures
    assert picture.source == "data:image/jpeg;base64,/9j/"
    page = report_page(tmp_path)
    assert picture.source in page
    assert HOSTILE not in page
    (tmp_path / "secret.jpg").write_bytes(b"\xff\xd8\xffsecret")
    captions = folder / "captions.jsonl"
    captions.write_text(captions.read_text().replace("00.jpg", str(tmp_path / "secret.jpg")))
    assert parts_by_task(read_contents(tmp_path)) == []


def test_pictures_of_an_older_record_are_not_shown(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK)
    (result,) = read_contents(tmp_path).results.done
    path = tmp_path / result.file
    write_gallery(path, [tile()], finished=result.finished)
    assert part_of(tmp_path).galleries != ()
    write_gallery(path, [tile()], finished="2025-01-01T00:00:00Z")
    assert parts_by_task(read_contents(tmp_path)) == []


def test_logs_are_read_up_to_a_torn_line(tmp_path: Path) -> None:
    lines = [{"step": i, "epoch": i / 2, "loss": 4.0 - i, "learning_rate": 0.1} for i in (1, 2)]
    log = tmp_path / "run" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "lo')
    found = pretraining([tmp_path, tmp_path / "absent"])
    assert [chart.title for chart in found.charts] == ["Loss", "Learning rate"]
    assert found.logs[0].summary == "step 2, epoch 1.00, loss 2"
    assert found.missing == (str(tmp_path / "absent"),)


def test_a_checkpoint_shows_the_loss_of_its_own_run() -> None:
    def log(name: str, losses: Sequence[float]) -> Log:
        lines = [{"step": i, "epoch": i / 2, "loss": x} for i, x in enumerate(losses, 1)]
        return Log(name=name, path=name, lines=tuple(lines), views="")

    model = Model(name="mine", last_epoch={"loss": 2.5})  # steps 3 and 4 of two epochs of two
    chart = loss_of(model, [log("other", (9, 9, 9, 9)), log("own", (9, 8, 3, 2))])
    assert chart is not None
    assert [name for *_, name in chart.legend] == ["own"]
    assert loss_of(model, [log("own", (9, 9, 9, 9)), log("own", (9, 8, 3, 2))]) == chart
    assert loss_of(replace(model, last_epoch={}), [log("own", (9, 8, 3, 2))]) is None


def test_records_of_one_cell_that_tolerated_unlike_images_have_unlike_names(tmp_path: Path) -> None:
    told = {"fingerprint": "f", "small": "", "counts": {"test": 3}, "tolerated": 3}
    complete(tmp_path, "mine", TASK)
    complete(tmp_path, "mine", TASK, data={"aircraft": told})
    done = read_contents(tmp_path).results.done
    first, second = (name for name, _ in named_records(done))
    assert first != second


def test_accuracy_stands_against_the_cost_of_unlike_networks(tmp_path: Path) -> None:
    for name, millions, images_per_s in (("small", 11, 90.0), ("large", 23, 40.0)):
        entry = backbone(name, num_parameters=millions * 1_000_000)
        complete(tmp_path, name, TASK, backbone=entry, speed={"224": images_per_s, "32": 999.0})
    parameters, speed = part_of(tmp_path).charts
    assert parameters.title == "Accuracy against parameters"
    assert "224 px" in speed.note
    complete(tmp_path, "large", TASK, backbone=entry | {"num_parameters": 11_000_000})
    assert parts_by_task(read_contents(tmp_path)) == []  # networks of one size


def test_hours_are_summed_and_figures_are_images_that_can_run_nothing(tmp_path: Path) -> None:
    complete(tmp_path, "mine", TASK, wall_s=7200.0)
    complete(tmp_path, "mine", TASK, 1, wall_s=3600.0)
    (row,) = task_hours(read_contents(tmp_path))
    assert (row["num_results"], row["hours"], row["longest"]) == (2, 3.0, 2.0)
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "jcl_figure2.svg").write_text("<svg><script>alert(1)</script></svg>")
    (one,) = figures(tmp_path)
    assert one[0] == "jcl figure2"
    assert one[1].startswith("data:image/svg+xml;base64,")
    assert "alert(1)" not in report_page(tmp_path)


def test_the_whole_page_is_below_the_limit_and_says_what_is_left_out(tmp_path: Path) -> None:
    image = {"class": "cat", "file": "a", "jpeg_base64": "/9j/" + "A" * 200_000}
    details = {"queries": [image | {"neighbors": [image] * 3}] * 6}
    for task in transfer_tasks()[:3]:
        complete(tmp_path, "mine", task, details=details)
    for result in read_contents(tmp_path).results.done:
        write_gallery(tmp_path / result.file, [tile(24_000)] * 12)
    run = tmp_path / "run"
    for folder in (tmp_path / "figures", run):
        folder.mkdir()
    for number, size in enumerate((900_000, 900_000, 900_000, 900_000, 1_100_000)):
        (tmp_path / "figures" / f"{number}.svg").write_text(" " * size)
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    (run / "views.jpg").write_bytes(b"\xff\xd8\xff" + bytes(200_000))
    page = report_page(tmp_path, [run])
    assert 5_000_000 < len(page.encode()) <= MOST_CHARACTERS
    assert "figures are left out for size: results/figures" in page
    assert "pictures are left out for size: the .gallery folders" in page


def snapshot(results: Path, epoch: int, **changes: Any) -> None:
    """Write the record of a snapshot of the run "jcl"."""
    entry = backbone(f"jcl@{epoch}", made_by=LORAC | {"epochs": float(epoch)})
    complete(results / RECORDS / SNAPSHOTS, entry["name"], TASK, backbone=entry, **changes)


def test_snapshots_of_each_schedule_and_engine_have_a_line_of_their_own(tmp_path: Path) -> None:
    for epoch in (1, 2):
        snapshot(tmp_path, epoch)
        snapshot(tmp_path, epoch, schedule="smoke")
        snapshot(tmp_path, epoch, engine="other")
    names = [name for _, _, name in part_of(tmp_path).charts[0].legend]
    assert len(names) == len({*names}) == 3
    assert sum("smoke" in name for name in names) == 1
    assert sum("engine" in name for name in names) == 1


FOREIGN: dict[str, Any] = {
    "val_accuracy": {"a": "x"},
    "top1": {"noise": {"1": "x"}},
    "training": 3,
    "most_confused": [{"klass": HOSTILE}],
    "queries": [{"neighbors": "x"}],
}


def test_a_foreign_detail_costs_only_its_own_task_and_names_of_any_script_are_shown(
    tmp_path: Path,
) -> None:
    kept = {"accuracy_per_class": {"cat": 20.0}}
    for task, (name, detail) in zip(transfer_tasks(), FOREIGN.items(), strict=False):
        complete(tmp_path, HOSTILE, task, details={name: detail})
    complete(tmp_path, "mine", transfer_tasks()[-1], details=kept)
    changes: dict[str, Any] = {"metrics": {"zap": 12.5}, "primary_metric": "zap"}
    changes["details"] = {"accuracy_per_class": {HOSTILE: 1.0, "猫 ☃\u202e": 2.0}}
    complete(tmp_path, "Ünïcode ☃ 名前", "no_such_task", heading="Strange", **changes)
    page = report_page(tmp_path)
    assert page.count('class="below unreadable"') == len(FOREIGN)
    assert "Accuracy by class" in page
    assert "no_such_task" in page
    assert "Ünïcode ☃ 名前" in page
    assert "猫 ☃" in page
    assert HOSTILE not in page
