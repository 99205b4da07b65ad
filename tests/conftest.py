"""Fixtures and hooks of all tests."""

import signal

import pytest

from tests.setup import commands

# A shell starts background commands with interrupts ignored, and every child inherits that. Tests
# of Ctrl-C would then wait in vain.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

commands.record()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of started programs last, after all tests have started theirs."""
    items.sort(key=lambda item: "commands_that_tests_have_started" in item.name)
