"""The entry point of the command ``pyrdma``.

A testbed starts hundreds of daemons, and each is small and quick because it does not load the
command line.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the daemon of a host, or the command line."""
    if sys.argv[1:] == ["daemon", "--stdio"]:
        from .hosts.daemon import serve_stdio

        serve_stdio()
        return
    from .commands.main import main as command_line

    command_line()
