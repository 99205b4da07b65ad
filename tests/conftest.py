"""Fixtures and hooks of all tests."""

import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyrdma import options
from tests.setup import commands

# A shell starts background commands with interrupts ignored, and nohup with hang-ups; every child
# inherits that. Tests of these signals would then wait in vain.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, usual)

commands.record()

# matplotlib embeds fonts in each PDF; the lines about that would fill the report of a failed test.
logging.getLogger("fontTools").setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, made in the existing build folder."""
    root = Path(__file__).resolve().parents[1]
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"),
            *(f"--config-settings=build-dir={root / 'build/release'}", "--wheel-dir", folder, root),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


USUAL_SEEDS = options.QUICK_SEEDS, options.FULL_SEEDS
# Runs without seeds measure one, so that tests are quick and count points simply. It is so before
# the first fixture of a module or of the session runs.
options.QUICK_SEEDS = options.FULL_SEEDS = 1


@pytest.fixture(autouse=True)
def usual_seeds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test of the mark ``usual_seeds`` as many seeds as users have."""
    if "usual_seeds" in request.keywords:
        monkeypatch.setattr(options, "QUICK_SEEDS", USUAL_SEEDS[0])
        monkeypatch.setattr(options, "FULL_SEEDS", USUAL_SEEDS[1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the test of started programs last, after all tests have started theirs."""
    items.sort(key=lambda item: "commands_that_tests_have_started" in item.name)
