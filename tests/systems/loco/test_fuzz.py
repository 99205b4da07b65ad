"""``pyrdma fuzz loco`` on the command line."""

from __future__ import annotations

from tests.errors import unnamed
from tests.fuzz_harness.test_fuzz import command


def test_an_unknown_bug_lists_the_bugs() -> None:
    ended = command("fuzz", "loco", "--mutation", "unknown")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "unknown", "release_without_fence") == []


def test_an_unknown_preset_lists_the_presets() -> None:
    ended = command("fuzz", "loco_store", "--preset", "papers")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "papers", "paper", "best") == []
