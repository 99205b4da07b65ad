"""Helpers of the notebooks: the results folder, and an experiment's figures inline."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from .runs import Options, execute

__all__ = ["results_folder", "show"]


def results_folder() -> Path:
    """Return the folder in ``PYRDMA_RESULTS``, or a temporary one."""
    return Path(os.environ.get("PYRDMA_RESULTS") or tempfile.mkdtemp(prefix="pyrdma-notebook-"))


def show(out: Path, *names: str) -> None:
    """Measure experiments without results in `out` on ``sim``, in quick mode; show the figures."""
    ipython: Any = import_module("IPython.display")
    for name in names:
        report = execute(name, Options(out=out, fabric="sim", jobs=1))
        for path in report.figures:
            if path.suffix == ".png":
                ipython.display(ipython.Image(filename=str(path)))
