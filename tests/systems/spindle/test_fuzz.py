"""``pyrdma fuzz spindle`` on the command line."""

from __future__ import annotations

from tests.errors import unnamed
from tests.fuzz_harness.test_fuzz import command


def test_an_unknown_bug_lists_the_bugs() -> None:
    ended = command("fuzz", "spindle", "--mutation", "unknown")
    assert ended.returncode == 2
    assert unnamed(ended.stderr, "unknown", "slot_reused_early") == []


def test_a_bug_is_found_and_replayed() -> None:
    ended = command("fuzz", "spindle", "--mutation", "delivered_on_receipt", "--seeds", "3")
    assert ended.returncode == 1
    assert unnamed(ended.stdout + ended.stderr, "replay") == []
