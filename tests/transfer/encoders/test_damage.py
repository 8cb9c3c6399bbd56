"""Damaged files are refused or give the same weights.

Nothing in them is executed.
"""

import random
from pathlib import Path

import pytest
import torch

from tests.transfer.encoders.damage import KINDS, base_weights
from transfer.encoders.architectures import BackboneError
from transfer.encoders.naming import is_optional
from transfer.encoders.opening import load_backbone

REFERENCE = {n: t.float() for n, t in base_weights().items() if not is_optional(n)}


def outcome(path: Path) -> str:
    try:
        state_dict = load_backbone(path).state_dict
    except BackboneError:
        return "refused"
    is_equal = all(torch.equal(state_dict[name], REFERENCE[name]) for name in REFERENCE)
    return "equal" if is_equal else "changed"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_damage_is_refused_or_harmless(kind: str, seed: int, tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "file.pth"
    damaged = KINDS[kind](random.Random(f"{seed} {kind}"), marker)
    damaged.write(path)
    assert outcome(path) in damaged.expected
    assert not marker.exists()
