"""Groups, all and severities of the corruption table, on scores made for it."""

import pytest
import torch

from transfer.datasets.imagenet.imagenet_c import EXTRA_KINDS, GROUPS, KINDS, MAIN_KINDS
from transfer.tasks.corruptions import Corrupted, CorruptionEval, accuracies


def corrupted(right: dict[tuple[str, int], int]) -> Corrupted:
    """Four images per corruption and severity, of which so many are answered rightly."""
    kinds, severities, answers = [], [], []
    for (kind, severity), count in right.items():
        kinds += [kind] * 4
        severities += [severity] * 4
        answers += [1] * count + [0] * (4 - count)
    scores = torch.nn.functional.one_hot(torch.tensor(answers), 2).float()
    labels = torch.ones(len(answers), dtype=torch.int64)
    return Corrupted(scores, labels, tuple(kinds), tuple(severities))


@pytest.fixture
def predictions() -> Corrupted:
    """Noise 100 %, blur 75, weather 50, digital 25, the extra four 0; from severity 4 on all 0."""
    counts = dict(zip(GROUPS, (4, 3, 2, 1), strict=True))
    per_kind = {kind: counts[group] for group, kinds in GROUPS.items() for kind in kinds}
    per_kind |= dict.fromkeys(EXTRA_KINDS, 0)
    return corrupted(
        {(k, s): n if s <= 3 else 0 for k, n in per_kind.items() for s in (1, 2, 3, 4, 5)}
    )


def test_a_group_is_the_mean_of_its_corruptions_over_five_severities(
    predictions: Corrupted,
) -> None:
    found = CorruptionEval().metrics(predictions)
    groups = [found[f"{group}_top1"] for group in GROUPS]
    assert groups == pytest.approx([60.0, 45.0, 30.0, 15.0])


def test_all_is_of_the_fifteen_and_all19_of_the_nineteen(predictions: Corrupted) -> None:
    found = CorruptionEval().metrics(predictions)
    fifteen = 3 * 60 + 4 * 45 + 4 * 30 + 4 * 15
    assert found["all_top1"] == pytest.approx(fifteen / 15)
    assert found["all19_top1"] == pytest.approx(fifteen / 19)


def test_severe_means_three_and_above(predictions: Corrupted) -> None:
    found = CorruptionEval().metrics(predictions)
    at_three = 3 * 100 + 4 * 75 + 4 * 50 + 4 * 25
    assert found["sev3plus_top1"] == pytest.approx(at_three / 15 / 3)
    assert found["sev3plus19_top1"] == pytest.approx(at_three / 19 / 3)


def test_without_the_extra_four_nothing_is_said_of_nineteen() -> None:
    found = CorruptionEval().metrics(corrupted({(k, s): 2 for k in MAIN_KINDS for s in (1, 3)}))
    assert found["all_top1"] == 50.0
    assert not [name for name in found if "19" in name]


def test_details_have_every_corruption_by_severity(predictions: Corrupted) -> None:
    cells = accuracies(predictions)
    assert list(cells) == list(KINDS)
    assert cells["fog"] == {1: 50.0, 2: 50.0, 3: 50.0, 4: 0.0, 5: 0.0}
