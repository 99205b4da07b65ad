"""Which processes run; a program that starts often imports this and nothing large."""

from __future__ import annotations

from pathlib import Path


def lives(process: int) -> bool:
    """Return whether a process runs, also one that nobody has waited for."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
