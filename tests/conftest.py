"""Fixtures and hooks of all tests."""

import signal

import pytest

from tests.setup import commands

# A shell starts background commands with interrupts ignored, and nohup with hang-ups; every child
# inherits that. Tests of these signals would then wait in vain.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)

commands.record()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of started programs last, after all tests have started theirs."""
    items.sort(key=lambda item: "commands_that_tests_have_started" in item.name)
