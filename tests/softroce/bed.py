"""run.sh from Python: its path, and the meaning of its status."""

from __future__ import annotations

import subprocess
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run.sh"
NOT_HERE = 77
SKIPPED = "softroce: skipped: "
"""Status of run.sh where QEMU or the packages are unavailable, and the prefix of the reason."""


def why_not_here(done: subprocess.CompletedProcess[str]) -> str | None:
    """Return the reason why run.sh could not start a guest; empty for a command's own status 77.

    All output of a command is on standard output, the reason on standard error.
    """
    said = [line for line in done.stderr.splitlines() if line.startswith(SKIPPED)]
    return said[-1] if done.returncode == NOT_HERE and said else None
