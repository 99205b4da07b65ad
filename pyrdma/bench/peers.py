"""Finds and loads the modules of ``experiments/peers``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import cast

from pyrdma.errors import Error

from .peer import Peer

__all__ = ["load"]


def _folder() -> Path:
    package = Path(__file__).resolve().parent.parent
    # The installed package contains the experiments; the source tree has them beside the package.
    candidates = [package / "experiments" / "peers", package.parent / "experiments" / "peers"]
    for folder in candidates:
        if folder.is_dir():
            return folder
    looked = " and ".join(str(folder) for folder in candidates)
    raise Error(f"no folder of peers in {looked}; install the package again")


def load(name: str) -> Peer:
    """Return the module ``experiments/peers/<name>.py``."""
    module_name = f"pyrdma.bench._peer_{name}"
    loaded = sys.modules.get(module_name)
    if loaded is None:
        path = _folder() / f"{name}.py"
        spec = importlib.util.spec_from_file_location(module_name, path)
        if spec is None or spec.loader is None:
            raise Error(f"cannot load {path}")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = loaded
        spec.loader.exec_module(loaded)
    return cast("Peer", loaded)
