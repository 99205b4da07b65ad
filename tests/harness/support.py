"""Runs the command line in its own process, on request as if without rdma-core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pyrdma._native import native

FAKE = str(Path(__file__).with_name("fake_experiment.py"))
SLOW = ("--set", "behaviour=slow", "--full", "--seed", "1")
COMMAND = [sys.executable, "-m", "pyrdma"]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with `more` and without matplotlib's window systems."""
    return {**os.environ, "MPLBACKEND": "Agg", **more}


def has_provider() -> bool:
    """Return whether the module was built with the provider for real NICs."""
    core = native()
    return bool(core.ibverbs.has_provider())  # type: ignore[attr-defined]


def without_rdma_core(folder: Path, library: str = "libibverbs.so.1") -> str:
    """Return an LD_LIBRARY_PATH by which a library of rdma-core cannot be opened."""
    folder.mkdir(exist_ok=True)
    (folder / library).touch()  # the loader finds it first, and it is not a library
    return str(folder)


Done = subprocess.CompletedProcess[str]


def pyrdma(*arguments: str, cwd: Path | None = None, **more: str) -> Done:
    """Run ``pyrdma`` to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=cwd,
        env=environment(**more),
    )
