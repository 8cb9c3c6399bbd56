"""Stored names stay: those of protocols, records, caches, trainings and recipes."""

import json

import pytest

from tests.contracts.frozen import FILE, frozen

NOW = frozen()
BEFORE = json.loads(FILE.read_text())


@pytest.mark.parametrize("kind", BEFORE)
def test_names_and_hashes_are_those_of_before(kind: str) -> None:
    assert json.loads(json.dumps(NOW[kind])) == BEFORE[kind]
