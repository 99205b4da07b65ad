"""A group of points in a job of Slurm. `pyrdma.executors.slurm_jobs` submits it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyrdma.errors import Error
from pyrdma.files import write_atomically

__all__ = ["beat", "run"]

FORGOTTEN_S = 600.0
"""A job ends, and removes the folder, when its program has shown no sign of life for this long."""

LOOK_S = 20.0
"""Period of the search for such a sign."""


def beat(folder: Path, now: float) -> None:
    """Show the jobs a sign of life."""
    write_atomically(folder / "alive", f"{now}\n".encode(), lasting=False)


def run(
    folder: str, working: str, work: Sequence[tuple[int, Callable[..., bytes], tuple[Any, ...]]]
) -> None:
    """Make calls, and write the result of each into ``folder/points`` as soon as there is one.

    Parameters
    ----------
    folder
        The folder that the program and its jobs share.
    working
        The working folder of the program, whose relative paths the calls may have.
    work
        For each call its number, the function, and its arguments.
    """
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)  # a cancelled job ends, and asks for no other
    os.chdir(working)
    place = Path(folder)
    threading.Thread(target=_end_when_forgotten, args=(place,), daemon=True).start()
    for call, function, arguments in work:
        (place / "points" / f"{call}.begun").touch()
        try:
            kind, content = "point", function(*arguments)
        except Exception as error:
            text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            kind = "error"
            content = json.dumps([type(error).__name__, text[:10_000]]).encode()
        write_atomically(place / "points" / f"{call}.{kind}", content, lasting=False)


def _end_when_forgotten(folder: Path) -> None:
    """End this process when its program has died, which cannot cancel it then."""
    seen, changed = "", time.monotonic()
    while time.monotonic() - changed < FORGOTTEN_S:
        try:
            found = (folder / "alive").read_text()
        except OSError:
            found = seen
        if found != seen:
            seen, changed = found, time.monotonic()
        time.sleep(LOOK_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
