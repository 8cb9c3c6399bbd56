"""LooC's All is compared with the mean that it fits; what the paper does not print stands beside
it."""

from pathlib import Path

from benchmarks.pages.published import published_table
from tests.synthetic_records import blocks, page, record

MOCO = {"method": "moco", "recipe": "moco/in100-r50", "epochs": 500.0, "data": "in100"}


def test_the_printed_all_is_no_mean_over_the_fifteen_printed_in_groups() -> None:
    table = published_table("looc/table3")
    for row in table.rows:
        noise, blur, weather, digital, of_all = (
            row.values[f"inc_{part}"] or 0.0
            for part in ("noise", "blur", "weather", "digital", "all")
        )
        assert 1.1 < of_all - (3 * noise + 4 * (blur + weather + digital)) / 15 < 1.7


def test_the_papers_own_numbers_are_compared(tmp_path: Path) -> None:
    for metric, score, digits in (("all19_top1", 48.2, "a"), ("all_top1", 46.6, "b")):
        record(
            tmp_path,
            score,
            backbone=metric,
            sha256=digits * 64,
            made_by=MOCO,
            task="imagenet_c100_eval",
            metric=metric,
            protocol="looc-2020/1",
        )
    text = page(tmp_path, "looc_table3.md")
    shown, against = blocks(text)
    assert "48.2" in shown["→ all19_top1"][8]
    assert "46.6" in shown["→ all_top1"][9]
    assert against["→ all19_top1"][1:] == [
        "IN-C-100 All",
        "48.20",
        "48.2",
        "+0.00",
        "[-2.1, +2.1]",
        "undecided",
    ]
    assert "→ all_top1" not in against
