"""What must hold on a real libibverbs, librdmacm and kernel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.softroce.conftest import HERE, Guest

ROOT = HERE.parents[1]
NATIVE_TESTS = ROOT / "build/release/native/native_tests"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_bed_passes_on_status_and_words(guest: Guest, tmp_path: Path) -> None:
    said = guest("sh", "-c", 'ibv_devices; echo "two  words"; echo kept >"$PYRDMA_SHARE/file"')
    assert "rxe0" in said
    assert "two  words" in said
    assert (tmp_path / "file").read_text() == "kept\n"
    with pytest.raises(AssertionError, match="status 3"):
        guest("sh", "-c", "exit 3")


def test_the_contract_holds(guest: Guest) -> None:
    if not NATIVE_TESTS.is_file():
        pytest.skip("native_tests is not built; sh tests/run.sh native builds it")
    said = guest(str(NATIVE_TESTS), "--gtest_color=no", "--gtest_filter=*/verbs:VerbsConnection*")
    passed = re.search(r"\[  PASSED  \] (\d+) tests", said)
    assert passed is not None, said[-4000:]
    assert int(passed[1]) >= 40
    skipped = set(re.findall(r"\[  SKIPPED \] \S+\.(\w+)", said))
    assert skipped <= {"ADynamicQueuePairReachesManyTargets", "DeviceMemoryIsReachedByRequestsOnly"}


def test_clusters_on_one_device(guest: Guest, python: str) -> None:
    said = guest(python, str(HERE / "one_host.py"))
    assert "all good" in said


def test_two_machines(guest: Guest, python: str) -> None:
    said = guest(python, str(HERE / "two_hosts.py"), pair=True)
    assert said.count("all good") == 2, said[-6000:]
