"""Running the command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FAKE = str(Path(__file__).with_name("fake_experiment.py"))
COMMAND = [sys.executable, "-m", "pyrdma"]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with `more` in it, matplotlib's window systems off."""
    return {**os.environ, "MPLBACKEND": "Agg", **more}


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
