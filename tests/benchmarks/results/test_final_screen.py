"""The summary of a run."""

from pathlib import Path
from typing import Any

from benchmarks.results.final_screen import final_screen
from benchmarks.results.published import transfer_tasks
from benchmarks.results.records import CellId, read_results
from tests.benchmarks.report.complete_records import LORAC
from tests.synthetic_records import failure, page, record

SVM = CellId("mine", "voc07_svm", "co2-2021/1", "paper", 0)
ASKED = SVM._replace(task=transfer_tasks()[0], protocol="lorac-2021/1")


def screen(results: Path, *cells: CellId) -> list[str]:
    return final_screen(read_results(results).runs, cells, {}, 80).splitlines()


def transferred(results: Path, score: float, **changes: Any) -> None:
    record(results, score, **{"task": ASKED.task, "protocol": ASKED.protocol, **changes})


def test_summary_shows_the_best_published_number(
    tmp_path: Path,
) -> None:
    failure(tmp_path, "voc07_svm", "CUDA out of memory")
    lines = screen(tmp_path, SVM)
    assert "failed" in lines[1]
    assert lines[-1] == "failed  mine  voc07_svm  CUDA out of memory"
    record(tmp_path, 70.0)
    header, row = screen(tmp_path, SVM)
    assert header.split() == ["task", "checkpoint", "metric", "ours", "published", "verdict"]
    assert row.split() == ["voc07_svm", "mine", "mAP", "70.0", "85.2", "-"]
    record(tmp_path, 72.0, seed=1)
    assert " 71.0 ± 1.4 " in screen(tmp_path, SVM, SVM._replace(seed=1))[1]


def test_protocol_variants_have_their_own_names(tmp_path: Path) -> None:
    linear = SVM._replace(task="voc12_seg_linear", protocol="dinov2-2023/1")
    grid32 = linear._replace(protocol="dinov2-2023-grid32/1")
    for cell in (linear, grid32):
        record(tmp_path, 70.0, task=cell.task, protocol=cell.protocol)
    first, second = screen(tmp_path, linear, grid32)[1:]
    assert first.startswith("voc12_seg_linear ")
    assert second.startswith("voc12_seg_linear@grid32 ")
    assert screen(tmp_path, grid32)[1].startswith("voc12_seg_linear@grid32 ")
    assert "| voc12_seg | voc12_seg_linear@grid32 |" in page(tmp_path, "overview.md")


def test_a_verdict_stays_with_its_protocol(tmp_path: Path) -> None:
    transferred(tmp_path, 47.5, made_by=LORAC)
    assert screen(tmp_path, ASKED)[1].endswith("? inconclusive [-2.8, +2.2]")
    for protocol in (ASKED.protocol, "other/1"):
        transferred(tmp_path, 30.0, protocol=protocol, made_by=LORAC)
    ours, second = screen(tmp_path, ASKED, ASKED._replace(protocol="other/1"))[1:]
    assert ours.endswith("▼ below [-20.2, -15.4]")
    assert "below" not in second


def test_a_verdict_is_that_of_its_checkpoint(tmp_path: Path) -> None:
    scores = {f"run{number}": score for number, score in enumerate((47.5, 30.0, 47.5, 47.5, 47.5))}
    scores["bad"] = 30.0
    for name, score in scores.items():
        transferred(tmp_path, score, backbone=name, sha256=f"{name:0>64}", made_by=LORAC)
    requested = [ASKED._replace(backbone=name) for name in scores]
    below = ["▼ below" in line for line in screen(tmp_path, *requested)[1:]]
    assert below == [False, True, False, False, False, True]
