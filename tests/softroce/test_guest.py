"""What must hold on a real libibverbs, librdmacm and kernel. Each test has its line in COMMANDS."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pyrdma.run
from pyrdma import registry
from tests.softroce.conftest import HERE, NATIVE_TESTS, Output
from tests.softroce.points import POINTS, measured_once

# Whichever is first waits for all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LACKS = {"ADynamicQueuePairReachesManyTargets", "DeviceMemoryIsReachedByRequestsOnly"}
"""Tests of the contract that need what Soft-RoCE has not."""


def test_bed(output_of: Output) -> None:
    said = output_of("bed", status=3)
    assert "rxe0" in said
    assert "two  words $HOME" in said


def passed(said: str, least: int) -> None:
    found = re.search(r"\[  PASSED  \] (\d+) tests", said)
    assert found is not None, said[-4000:]
    assert int(found[1]) >= least


needs_native_tests = pytest.mark.skipif(
    not NATIVE_TESTS.is_file(), reason="native_tests is not built; sh tests/run.sh native builds it"
)


@needs_native_tests
def test_contract(output_of: Output) -> None:
    said = output_of("contract")
    passed(said, 40)
    assert set(re.findall(r"\[  SKIPPED \] \S+\.(\w+)", said)) <= LACKS


@needs_native_tests
def test_loco(output_of: Output) -> None:
    passed(output_of("loco"), 25)


def test_one_host(output_of: Output) -> None:
    assert "all good" in output_of("one_host")


def test_experiments(
    output_of: Output, ran: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    output_of("experiments")
    # What was measured in the guest is there, so a run here has only to read and draw it.
    monkeypatch.setattr(pyrdma.run, "check_fabric", lambda *_: None)
    monkeypatch.setattr(registry, "load", measured_once)
    for name, settings in POINTS.items():
        options = pyrdma.run.Options(ran() / "results", fabric="verbs", settings=settings)
        report = pyrdma.run.run(name, options)
        assert report.outcome.measured == 0, "measured here, not in the guest"
        assert not report.outcome.failed
        assert (report.folder / "results.parquet").is_file()
        assert report.figures


def test_two_machines(pair: Callable[..., str]) -> None:
    said = pair(sys.executable, str(HERE / "two_hosts.py"))
    assert said.count("all good") == 2, said[-6000:]
