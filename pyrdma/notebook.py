"""What the notebooks share: where results go, and an experiment's figures in place."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from .run import Options, run

__all__ = ["results_folder", "show"]


def results_folder() -> Path:
    """Return the folder that ``PYRDMA_RESULTS`` names, or a temporary one."""
    return Path(os.environ.get("PYRDMA_RESULTS") or tempfile.mkdtemp(prefix="pyrdma-notebook-"))


def show(out: Path, *names: str) -> None:
    """Measure on ``sim``, in quick mode, what has no results in `out` yet; show the figures."""
    ipython: Any = import_module("IPython.display")
    for name in names:
        report = run(name, Options(out=out, fabric="sim", jobs=1))
        for path in report.figures:
            if path.suffix == ".png":
                ipython.display(ipython.Image(filename=str(path)))
