"""Marks the tests that take ``PYRDMA_HOSTILE_S`` seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import hostile


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder that use `hostile.inputs` or `hostile.SECONDS`."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.path.parent != Path(__file__).parent:
            continue
        if {"inputs", "SECONDS"} & set(item.function.__code__.co_names):
            item.add_marker(pytest.mark.hostile)
            item.add_marker(pytest.mark.timeout(hostile.SECONDS + 300))
