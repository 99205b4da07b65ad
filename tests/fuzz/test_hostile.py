"""Hostile input depends on its seed alone, and the tests that use it may take their time."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz import hostile
from tests.fuzz.hostile import SECONDS, inputs


def test_a_seed_gives_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for seed in (1, 2, 1):
        monkeypatch.setattr(hostile, "SEED", seed)
        found.append(list(islice(inputs([b"some good input"]), 50)))
    assert found[0] == found[2]
    assert found[0][0] == found[1][0] == b"some good input"
    assert found[0] != found[1]


def test_a_test_of_hostile_input_is_marked_and_has_time(request: pytest.FixtureRequest) -> None:
    assert next(inputs([b"good"])) == b"good"
    assert request.node.get_closest_marker("hostile") is not None
    assert request.node.get_closest_marker("timeout").args[0] > SECONDS
