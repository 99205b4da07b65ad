"""The errors of the package; the native module raises the same classes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "Cancelled",
    "CompletionError",
    "Error",
    "Exhausted",
    "HostLost",
    "InvalidArgument",
    "NodeEnded",
    "Timeout",
    "Unavailable",
    "nearest",
]


class Error(RuntimeError):
    """A set-up, a measurement or a request failed; the message says what to change.

    Attributes
    ----------
    definite : bool
        Whether the failed action certainly had no effect.
    nodes : tuple of int
        The nodes to blame, such as a peer that does not answer; empty if the error blames no node.
    """

    definite: bool = True
    nodes: tuple[int, ...] = ()


class InvalidArgument(Error, ValueError):
    """A value is out of its bounds; the message names the value, the bound and the remedy."""


class Unavailable(Error):
    """The machine or the build lacks a feature; the message says what to install."""


class Exhausted(Error):
    """A resource (memory, queue slots, disk) ran out; the message names it."""


class Timeout(Error, TimeoutError):
    """A deadline passed."""


class Cancelled(BaseException):
    """A task of a node program was cancelled, or the program ended while the task waited.

    It is no `Error`, so that ``except Exception`` does not keep a task from its end.
    """


class NodeEnded(Error):
    """A node's process ended during a run; the message says how, with its last words."""


class HostLost(Error):
    """A host of a testbed fell silent, or the connection to it ended; the message names it."""


class CompletionError(Error):
    """A request completed with an error.

    Attributes
    ----------
    status : str
        Name of the completion status.
    wr_id : int
        Identifier that the caller gave to the request.
    qp_num : int
        Number of the queue pair.
    """

    status: str = ""
    wr_id: int = 0
    qp_num: int = 0


def nearest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ``; did you mean ...?`` with the known names nearest to `name`, or an empty text."""
    matches = difflib.get_close_matches(name, list(known), n=limit, cutoff=0.5)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""
