"""The twin of this machine: micro-benchmarks give a profile, which predicts the workloads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pyrdma import provenance, validate

pytestmark = pytest.mark.slow

SANITY = 3.0
"""Most that the median entry may be off by, as a factor. The bounds of the command are for a quiet
machine; this one may be busy."""


def pyrdma(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyrdma", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.skipif(provenance.usable_cores() < 2, reason="two nodes need two cores")
def test_a_calibrated_profile_predicts_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "twin.toml"
    calibrated = pyrdma("calibrate", "--fabric", "shm", "--out", profile)
    assert calibrated.returncode == 0, calibrated.stderr
    options = ("--out", tmp_path / "results", "--repetitions", 1)
    validated = pyrdma("validate", profile, *options, "--json")
    assert validated.returncode in (0, 1), validated.stderr
    found: list[dict[str, Any]] = json.loads(validated.stdout)
    assert [entry["name"] for entry in found] == [v.name for v in validate.choose()]
    with capsys.disabled():
        print(f"\n{pyrdma('validate', profile, *options).stdout}")  # from the stored points
    assert [entry["problem"] for entry in found if entry["problem"]] == []
    ratios = [entry["simulated"] / entry["measured"] for entry in found]
    assert median(max(ratio, 1 / ratio) for ratio in ratios) < SANITY
