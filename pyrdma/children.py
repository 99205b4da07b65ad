"""Starts Python in child processes, and looks after them.

Python puts the working folder or the script's folder first on `sys.path`. A file ``struct.py``
there hides the module of Python's library. A child process imports from these folders only if
nobody else may write to them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from .errors import Error
from .trust import distrusted

__all__ = ["end_of", "is_stopped", "python"]

_LAUNCHER = str(Path(__file__).with_name("_child.py"))
_PACKAGE_PARENT = str(Path(__file__).parent.parent)


def python(module: str) -> list[str]:
    """Return the command that calls ``main()`` of `module` in a new process.

    The process has this one's flags and module path, without working and script folders that others
    may write to.

    Raises
    ------
    Error
        A script is in a folder that others may write to, or such a working folder is on the path;
        the message names it.
    """
    # multiprocessing starts its processes with the same flags.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, _LAUNCHER, module, *_module_path()]


def _module_path() -> list[str]:
    """Return the folders of `sys.path` for a child process."""
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    script, is_file = _script_folder()
    try:
        working = Path.cwd().resolve()
    except FileNotFoundError:
        working = None  # it has been removed
    found = []
    for entry in sys.path:
        if working is None and not Path(entry).is_absolute():
            continue
        folder = Path(entry).absolute()
        real = folder.resolve()
        if real in (script, working) and (not entry or entry not in named):
            why = distrusted(folder, group_too=True)
            # A session or an installed command runs there, but has no modules there.
            if why and (not entry or (real == script and not is_file)):
                continue
            if why:
                raise Error(
                    f"Python loads modules from {folder} first, and {why}: a module that somebody "
                    "puts there would run as you; use `chmod go-w`, start the program from a "
                    "folder of your own, or name the folder in PYTHONPATH to trust it"
                )
        found.append(str(folder))
    if _PACKAGE_PARENT not in found:
        found.append(_PACKAGE_PARENT)
    return found


def _script_folder() -> tuple[Path | None, bool]:
    """Return the folder of the program's script, and whether its name ends in ``.py``."""
    main: Any = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:  # interactive, or started by -m
        return None, False
    return Path(file).resolve().parent, file.endswith(".py")


def is_stopped(process: int) -> bool:
    """Return whether a signal has stopped a process; one that a debugger holds does not count."""
    return state(process) == "T"


def state(process: int) -> str:
    """Return the letter of a process's state as in ``ps``; an empty text without such a process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    return text.rsplit(")", 1)[1].split()[0]  # the name before it may hold any character


def end_of(said: IO[bytes]) -> str:
    """Return the last 4096 bytes of the file to which a process writes; it may be long."""
    size = os.fstat(said.fileno()).st_size
    # Not a seek: the process shares the file's position.
    return os.pread(said.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
