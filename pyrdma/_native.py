"""The native module, loaded when it is first used."""

from __future__ import annotations

import importlib
import sys

from .errors import Unavailable

__all__ = ["native"]


def native() -> object:
    """Return the native module.

    Raises
    ------
    Unavailable
        The module was not built for this Python.
    """
    try:
        return importlib.import_module(f"{__package__}._core")
    except ImportError as error:
        raise Unavailable(
            f"the native module pyrdma._core cannot be loaded ({error}); build it for Python "
            f"{sys.version_info.major}.{sys.version_info.minor} with: pip install ."
        ) from error
