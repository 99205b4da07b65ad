"""``pyrdma fuzz erpc`` on the command line."""

from __future__ import annotations

from tests.errors import unnamed
from tests.fuzz_harness.test_fuzz import command


def test_an_unknown_bug_lists_the_bugs() -> None:
    ended = command("fuzz", "erpc", "--mutation", "unknown")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "unknown", "executes_again") == []


def test_an_unknown_preset_lists_the_presets() -> None:
    ended = command("fuzz", "erpc", "--preset", "papers")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "papers", "paper", "best") == []
