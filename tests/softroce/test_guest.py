"""What must hold on a real libibverbs, librdmacm and kernel. Each test has its line in COMMANDS."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.softroce.conftest import HERE, NATIVE_TESTS, Output

# Whichever is first waits for all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LACKS = {"ADynamicQueuePairReachesManyTargets", "DeviceMemoryIsReachedByRequestsOnly"}
"""Tests of the contract that need what Soft-RoCE has not."""


def test_bed(output_of: Output) -> None:
    said = output_of("bed", status=3)
    assert "rxe0" in said
    assert "two  words $HOME" in said


def test_contract(output_of: Output) -> None:
    if not NATIVE_TESTS.is_file():
        pytest.skip("native_tests is not built; sh tests/run.sh native builds it")
    said = output_of("contract")
    passed = re.search(r"\[  PASSED  \] (\d+) tests", said)
    assert passed is not None, said[-4000:]
    assert int(passed[1]) >= 40
    assert set(re.findall(r"\[  SKIPPED \] \S+\.(\w+)", said)) <= LACKS


def test_one_host(output_of: Output) -> None:
    assert "all good" in output_of("one_host")


def test_experiments(output_of: Output, ran: Callable[[], Path]) -> None:
    output_of("experiments")
    for name in ("latency", "bandwidth", "rate"):
        folder = ran() / "results/fabric" / name / "verbs"
        assert (folder / "results.parquet").is_file()
        assert (folder / f"{name}.png").is_file()


def test_two_machines(pair: Callable[..., str]) -> None:
    said = pair(sys.executable, str(HERE / "two_hosts.py"))
    assert said.count("all good") == 2, said[-6000:]
