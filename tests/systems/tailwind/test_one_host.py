"""The program of the Soft-RoCE guest, over shared memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_one_host_over_shared_memory() -> None:
    program = Path(__file__).with_name("one_host.py")
    done = subprocess.run(
        [sys.executable, program, "shm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all good" in done.stdout
