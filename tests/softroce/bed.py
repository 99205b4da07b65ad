"""run.sh from Python: where it is, and what its status says."""

from __future__ import annotations

import subprocess
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run.sh"
NOT_HERE = 77
SKIPPED = "softroce: skipped: "
"""Status of run.sh where QEMU or the packages cannot be had, and how it says why."""


def why_not_here(done: subprocess.CompletedProcess[str]) -> str | None:
    """Return why run.sh could not have the bed here, which a command's own 77 does not say.

    What a command prints is on standard output, all of it.
    """
    said = [line for line in done.stderr.splitlines() if line.startswith(SKIPPED)]
    return said[-1] if done.returncode == NOT_HERE and said else None
