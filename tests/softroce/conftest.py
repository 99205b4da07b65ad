"""The bed as a fixture: what the tests want to have run, in one boot of a guest with Soft-RoCE."""

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
"""Status of batch.sh, which must arrive here."""
BOOT_S, COMMAND_S = 60, 240
"""How long it may take at most. An emulated guest beside other work is slow, not wrong."""

FILTERS = {
    "contract": "*/Fabric*/verbs:*/Malformed*/verbs:*/EnvContract*/verbs"
    ":VerbsConnection*:VerbsMemory*",
    "loco": "*/Loco*/verbs:*/Queues*/verbs",
}
"""The native tests that run in the guest."""
COMMANDS = {
    "bed": "ibv_devices; echo \"two  words\" '$HOME'; exit 3",
    **{n: f"{NATIVE_TESTS} --gtest_color=no --gtest_filter='{f}'" for n, f in FILTERS.items()},
    "one_host": f"{sys.executable} {HERE}/one_host.py",
    "experiments": f'{sys.executable} {HERE}/points.py "$PYRDMA_SHARE"',
}
"""What a test `test_<name>` has run in the guest, by name."""


class Output(Protocol):
    """The output of a command of `COMMANDS`; fails the test with it at another status."""

    def __call__(self, name: str, status: int = 0) -> str: ...


def check_asked_for() -> None:
    """Skip unless the guest was asked for, as ``sh tests/run.sh`` does by ``PYRDMA_SOFTROCE=1``.

    A bare pytest does not: it may fetch packages, and on a machine busy with other things an
    emulated guest starves, and what fails then says nothing.
    """
    if os.environ.get("PYRDMA_SOFTROCE") != "1":
        pytest.skip("no Soft-RoCE guest was asked for; sh tests/run.sh softroce runs it")


def run_bed(share: Path, limit_s: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the bed; skip, saying why, where it cannot be had."""
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
    """Return what gives the folder of the logs, once all that the tests want has run."""
    selected = {item.name for item in request.session.items}
    wanted = {name: command for name, command in COMMANDS.items() if f"test_{name}" in selected}
    folder = tmp_path_factory.mktemp("shared, with a blank")
    reason: list[str] = []  # why it was skipped, once that is known

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
    """Return what gives a command's output."""

    def output(name: str, status: int = 0) -> str:
        folder = ran()
        log = folder / f"{name}.log"
        text = log.read_text(errors="replace") if log.exists() else "it was not reached"
        ended = folder / f"{name}.status"
        got = ended.read_text().strip() if ended.exists() else "none"
        assert got == str(status), text[-8000:]
        return text

    return output


@pytest.fixture
def pair(tmp_path: Path) -> Callable[..., str]:
    """Return what runs a command in two joined guests and returns what both say."""

    def run(*command: str) -> str:
        done = run_bed(tmp_path, BOOT_S + COMMAND_S, "--pair", *command)
        text = done.stdout + done.stderr
        assert done.returncode == 0, f"status {done.returncode} of {shlex.join(command)}:\n{text}"
        return text

    return run
