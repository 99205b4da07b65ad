"""The bed as a fixture: a command in a guest with a Soft-RoCE device, or in two joined ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

HERE = Path(__file__).resolve().parent
NOT_HERE = 77
"""Status of run.sh where QEMU or the packages cannot be had."""


class Guest(Protocol):
    """Runs a command in the bed to its end; fails the test with its output unless it succeeds."""

    def __call__(self, *command: str, pair: bool = False, timeout_s: int = 240) -> str: ...


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    """Return what runs a command in the bed; it skips, saying why, where that cannot be had.

    The emulated guest takes minutes, so that it is asked for by ``PYRDMA_SOFTROCE=1``.
    """
    if not os.environ.get("PYRDMA_SOFTROCE"):
        pytest.skip("the Soft-RoCE guest takes minutes; PYRDMA_SOFTROCE=1 runs it")

    def run(*command: str, pair: bool = False, timeout_s: int = 240) -> str:
        script = ["sh", str(HERE / "run.sh"), *(["--pair"] if pair else [])]
        done = subprocess.run(
            [*script, "--timeout", str(timeout_s), *command],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s + 120,
            env={**os.environ, "PYRDMA_SHARE": str(tmp_path)},
        )
        if done.returncode == NOT_HERE:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"status {done.returncode}:\n{output[-8000:]}"
        return output

    return run


@pytest.fixture
def python() -> str:
    """Return this interpreter, which the guest sees at the same place."""
    return sys.executable
