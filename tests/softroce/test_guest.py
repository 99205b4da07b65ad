"""Tests on a real libibverbs, librdmacm and kernel. Each test has its line in COMMANDS."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrdma import runs
from tests.softroce.bed import RUN, why_not_here
from tests.softroce.conftest import (
    FILTERS,
    NATIVE_TESTS,
    PROGRAMS,
    Output,
    check_asked_for,
)
from tests.softroce.points import POINTS
from tests.softroce.pretended import Machine, ends, run_folders, running

# The first test waits for all commands.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LACKS = {
    "ABadRequestStopsItsSenderOnly",
    "ADeadNodeStopsTheRequestsBehind",
    "ADynamicQueuePairReachesManyTargets",
    "AFailedCompareSwapStoresNothing",
    "AReceiveTakesOneDatagramPerStride",
    "ASharedQueueHasADomainOfItsOwn",
    "ATargetLeavesServiceAndComesBack",
    "ATargetOnlyReceives",
    "AnEndTakesAWholeReceive",
    "BoundsOfDeviceMemory",
    "CarriesWhatRcCarries",
    "DeviceMemoryIsReachedByRequestsOnly",
    "DeviceMemoryIsUsedUpAndComesBack",
    "MessagesOfSeveralSendersStayApart",
    "NothingFollowsTheEndOfATarget",
    "NothingOvertakesARequestThatWaits",
}
"""Tests of the contract that need a feature that Soft-RoCE lacks."""


def test_bed(output_of: Output) -> None:
    said = output_of("bed", status=3)
    assert "rxe0" in said
    assert "two  words $HOME" in said


def check_passed(name: str, said: str, lacking: int = 0) -> None:
    """Check that a filter's tests passed, except tests of a feature that the device lacks."""
    listed = subprocess.run(
        [NATIVE_TESTS, "--gtest_list_tests", f"--gtest_filter={FILTERS[name]}"],
        env={**os.environ, "PYRDMA_TEST_VERBS": "1"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    there = sum(line.startswith("  ") for line in listed.splitlines())
    found = re.search(r"\[  PASSED  \] (\d+) tests?\b", said)
    assert found is not None, said[-4000:]
    assert int(found[1]) == there - lacking > 0, said[-4000:]


needs_native_tests = pytest.mark.skipif(
    not NATIVE_TESTS.is_file(), reason="native_tests is not built; sh tests/run.sh native builds it"
)


@needs_native_tests
def test_contract(output_of: Output) -> None:
    said = output_of("contract")
    check_passed("contract", said, len(LACKS))
    assert set(re.findall(r"\[  SKIPPED \] \S+\.(\w+)", said)) == LACKS


@needs_native_tests
@pytest.mark.parametrize("name", PROGRAMS)
def test_system(name: str, output_of: Output) -> None:
    check_passed(f"system[{name}]", output_of(f"system[{name}]"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, output_of: Output) -> None:
    assert "all good" in output_of(f"program[{name}]")


def test_one_host(output_of: Output) -> None:
    assert "all good" in output_of("one_host")


def test_node_programs(output_of: Output) -> None:
    assert "all good" in output_of("node_programs")


def test_experiments(output_of: Output, ran: Callable[[], Path]) -> None:
    output_of("experiments")
    for name in POINTS:
        [report] = runs.draw(name, ran() / "results", "verbs")
        assert report.points == 1
        assert report.figures, report


def guests_in(temporary: Path) -> list[int]:
    """Return the process ids of the guests whose runs have their folders in a temporary folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink().is_relative_to(temporary):
                found.append(int(process.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found


@pytest.fixture
def own_to_the_guest() -> Iterator[Path]:
    """A temporary folder at a place where the guest has its own mount."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_a_run_that_is_killed_takes_its_guest_along(own_to_the_guest: Path, tmp_path: Path) -> None:
    check_asked_for()
    temporary = own_to_the_guest
    command = 'touch "$PYRDMA_SHARE/touched"; echo "$PYRDMA_SHARE"; sleep 250'
    started = subprocess.Popen(
        ["sh", str(RUN), "sh", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), "PYRDMA_SHARE": ""},
    )
    with running(started) as process:
        assert process.stdout is not None
        share = process.stdout.readline().strip()  # while the command sleeps
        if not share:
            out, err = process.communicate()
            done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
            if reason := why_not_here(done):
                pytest.skip(reason)
            pytest.fail(err)
        assert Path(share, "touched").exists(), "the folder is shared, though below /dev/shm"
        [run] = run_folders(temporary).values()
        assert not list(run.glob("control/environment*")), "which may hold secrets"
        guests = guests_in(temporary)
        assert guests
        process.kill()
        process.wait(20)
        assert ends(guests, within_s=10)
    assert guests_in(temporary) == []
    assert Machine(tmp_path, temporary).run("true").returncode == 0, "the next one cleans up"
    assert run_folders(temporary) == {}


def test_two_machines(pair: Callable[..., str]) -> None:
    said = pair(sys.executable, "-m", "tests.softroce.two_hosts")
    assert said.count("all good") == 2, said[-6000:]
