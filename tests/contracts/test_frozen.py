"""Stored names stay: those of protocols, records, caches, trainings and recipes."""

import json

import pytest

from tests.contracts.frozen import FILE, frozen

NOW = frozen()
BEFORE = json.loads(FILE.read_text())


def test_names_and_hashes_are_those_of_before(subtests: pytest.Subtests) -> None:
    for kind in BEFORE:
        with subtests.test(kind=kind):
            assert json.loads(json.dumps(NOW[kind])) == BEFORE[kind]
