"""Helpers of the notebooks: their results, figures inline, and verdicts as a table."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import claims, registry
from .data import NotEvaluated
from .evidence import Evidence
from .runs import Options, execute
from .sharing.fetching import is_unpacked

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["progress", "results_folder", "show", "verdicts"]


def results_folder() -> Path:
    """Return the archive or folder in ``PYRDMA_RESULTS``, or a temporary folder.

    A folder that is not there is made.
    """
    named = os.environ.get("PYRDMA_RESULTS")
    path = Path(named or tempfile.mkdtemp(prefix="pyrdma-notebook-"))
    if not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
    return path


def progress(name: str) -> Callable[[int, int, str], None]:
    """Return a function that shows how many points of an experiment are done, for `pyrdma.run`.

    It writes one line below the cell, again after each point.
    """
    ipython: Any = import_module("IPython.display")
    line = None

    def report(done: int, total: int, text: str) -> None:
        nonlocal line
        shown = ipython.Pretty(f"{name}: {done} of {total} points; {text}")
        if line is None:
            line = ipython.display(shown, display_id=True)
        else:
            line.update(shown)

    return report


def show(out: Path, *names: str) -> None:
    """Show the figures of experiments on ``sim``.

    Those of a fetched archive are shown as they are. Elsewhere a quick sweep that `out` lacks is
    measured first, with the usual seeds, and a line shows the progress.
    """
    ipython: Any = import_module("IPython.display")
    for name in names:
        for path in _figures(out, name):
            ipython.display(ipython.Image(filename=str(path)))


def _figures(out: Path, name: str) -> list[Path]:
    if not is_unpacked(out):
        options = Options(out=out, fabric="sim", jobs=1, seeds=_stored_seeds(out, name))
        report = execute(name, options, progress=progress(name))
        return [path for path in report.figures if path.suffix == ".png"]
    path = out / name / "sim" / f"{Path(name).name}.png"
    if path.is_file():
        return [path]
    print(f"the archive has no figure of {name} on sim")
    return []


def _stored_seeds(out: Path, name: str) -> list[int] | None:
    """Return the seeds of a whole quick sweep that `out` holds; None for the usual ones."""
    if not out.is_dir():
        return None
    try:
        table = Evidence(out, "sim").data(registry.load(name)).frame
    except NotEvaluated:
        return None
    return sorted(map(int, table["seed"].unique())) if table["quick"].all() else None


def verdicts(out: Path) -> pd.DataFrame:
    """Return a table of the verdicts of all claims on ``sim``: new ones, or those of an archive."""
    import pandas as pd

    if is_unpacked(out):
        document = json.loads((out.parent / "verdicts/sim.json").read_text(encoding="utf-8"))
        return pd.DataFrame(document["verdicts"])
    return pd.DataFrame([verdict.as_dict() for verdict in claims.evaluate(out)])
