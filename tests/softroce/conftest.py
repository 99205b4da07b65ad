"""A guest with Soft-RoCE as a fixture: one boot runs the commands of all tests."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.softroce.bed import RUN, why_not_here

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE_TESTS = ROOT / "build/release/native/native_tests"
CAME_TO_ITS_END = 42
"""Status of batch.sh at its end, which the guest must return."""
BOOT_S, COMMAND_S = 60, 240
"""Time limit. An emulated guest is slow when the machine has other work."""

PROGRAMS = {path.parent.name: path for path in ROOT.glob("tests/systems/*/one_host.py")}
"""The program of each system that runs in the guest."""
FILTERS = {
    "contract": "*/Fabric*/verbs:*/Malformed*/verbs:*/EnvContract*/verbs"
    ":VerbsConnection*:VerbsMemory*:VerbsPath*"
    # The kernel's rxe frees a queue pair too early when it is closed amid its peer's writes
    # (refcount_t: underflow in Linux 6.1), and the device is lost.
    "-*NothingFollowsTheEndOfAQueuePair*",
    **{
        f"system[{name}]": f"*/{name.capitalize()}*/verbs:*/{name.capitalize()}*/verbs_best"
        for name in PROGRAMS
    },
}
"""The native tests that run in the guest. The suites of a system begin with its name."""
COMMANDS = {
    "bed": "ibv_devices; echo \"two  words\" '$HOME'; exit 3",
    **{n: f"{NATIVE_TESTS} --gtest_color=no --gtest_filter='{f}'" for n, f in FILTERS.items()},
    "one_host": f"{sys.executable} {HERE}/one_host.py",
    "node_programs": f"{sys.executable} -m tests.softroce.node_programs",
    **{f"program[{name}]": f"{sys.executable} {path}" for name, path in PROGRAMS.items()},
    "experiments": f'{sys.executable} {HERE}/points.py "$PYRDMA_SHARE"',
}
"""The command that a test `test_<name>` runs in the guest, by name."""


class Output(Protocol):
    """The output of a command of `COMMANDS`; another status fails the test and shows the output."""

    def __call__(self, name: str, status: int = 0) -> str: ...


def check_asked_for() -> None:
    """Skip unless ``PYRDMA_SOFTROCE=1``, which ``sh tests/run.sh`` sets.

    A bare pytest does not set it, since the guest may fetch packages. On a busy machine an emulated
    guest is too slow, and its failures are not meaningful.
    """
    if os.environ.get("PYRDMA_SOFTROCE") != "1":
        pytest.skip("the Soft-RoCE guest is off; sh tests/run.sh softroce runs it")


def run_bed(share: Path, limit_s: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the guest; skip with the reason where no guest can run."""
    check_asked_for()
    done = subprocess.run(
        ["sh", str(RUN), "--timeout", str(limit_s), *command],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=limit_s + 300,  # the packages may have to be fetched
        env={**os.environ, "PYRDMA_SHARE": str(share)},
    )
    if reason := why_not_here(done):
        pytest.skip(reason)
    return done


@pytest.fixture(scope="session")
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Return a function that runs all commands once and returns the folder of the logs."""
    selected = {item.name for item in request.session.items}
    wanted = {name: command for name, command in COMMANDS.items() if f"test_{name}" in selected}
    folder = tmp_path_factory.mktemp("shared, with a blank")
    reason: list[str] = []  # reason of the skip, after the first attempt

    def share() -> Path:
        if reason:
            pytest.skip(reason[0])
        if (folder / "batch").exists():
            return folder
        (folder / "batch").write_text("".join(f"{n} {c}\n" for n, c in wanted.items()))
        limit = BOOT_S + COMMAND_S * len(wanted)
        try:
            done = run_bed(folder, limit, "sh", str(HERE / "batch.sh"), str(COMMAND_S))
        except pytest.skip.Exception as skipped:
            reason.append(str(skipped))
            raise
        print(done.stdout)
        assert done.returncode == CAME_TO_ITS_END, done.stdout + done.stderr
        return folder

    return share


@pytest.fixture
def output_of(ran: Callable[[], Path]) -> Output:
    """Return a function that returns a command's output."""

    def output(name: str, status: int = 0) -> str:
        folder = ran()
        log = folder / f"{name}.log"
        text = log.read_text(errors="replace") if log.exists() else "the command did not run"
        ended = folder / f"{name}.status"
        got = ended.read_text().strip() if ended.exists() else "none"
        assert got == str(status), text[-8000:]
        return text

    return output


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs a command in two connected guests and returns both outputs."""

    def run(*command: str) -> str:
        done = run_bed(tmp_path, BOOT_S + COMMAND_S, "--pair", *command)
        text = done.stdout + done.stderr
        assert done.returncode == 0, f"status {done.returncode} of {shlex.join(command)}:\n{text}"
        return text

    return run
