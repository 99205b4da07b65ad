"""The daemon of a host as a process of this machine; see `pyrdma.hosts.daemon`."""

from __future__ import annotations

from .hosts.daemon import serve_stdio as main

__all__ = ["main"]
