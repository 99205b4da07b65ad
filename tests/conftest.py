"""What all tests need."""

import signal

import pytest

from tests.setup import commands

# Where the tests run in the background of a shell, interrupts are ignored, and every child would
# inherit that: tests of Ctrl-C would wait for nothing.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

commands.record()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Judge what was started once everything has been."""
    items.sort(key=lambda item: "commands_that_tests_have_started" in item.name)
