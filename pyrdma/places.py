"""Where results were measured: a fabric, a testbed, a host."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .arguments import shown
from .errors import InvalidArgument, nearest
from .fabrics import FABRICS

__all__ = ["NAME", "Place"]

NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
"""Name of a host or of a testbed."""

_TEXT = re.compile(rf"(\w+)(?:@({NAME.pattern})(?:/({NAME.pattern}))?)?", re.ASCII)


@dataclass(frozen=True, order=True)
class Place:
    """Where a sweep was measured; as a text ``FABRIC``, ``FABRIC@TESTBED`` or ``...@TESTBED/HOST``.

    Attributes
    ----------
    testbed
        Name of the testbed; empty for this machine.
    host
        The host that measured the whole sweep, as each does over ``shm``; otherwise empty.
    """

    fabric: str
    testbed: str = ""
    host: str = ""

    @classmethod
    def of(cls, text: str) -> Place:
        """Return the place that a text names.

        Raises
        ------
        InvalidArgument
            It names none.
        """
        found = _TEXT.fullmatch(text)
        if not found or found[1] not in FABRICS:
            raise InvalidArgument(
                f"fabric is {shown(text)}; give {', '.join(FABRICS)}, FABRIC@TESTBED or "
                f"FABRIC@TESTBED/HOST{nearest(text, FABRICS)}"
            )
        return cls(*(part or "" for part in found.groups()))

    @staticmethod
    def is_folder(name: str) -> bool:
        """Return whether a folder of this name has results: FABRIC or FABRIC@TESTBED."""
        found = _TEXT.fullmatch(name)
        return found is not None and found[1] in FABRICS and not found[3]

    @property
    def folder(self) -> str:
        """Name of the folder with the results, below that of the experiment."""
        return f"{self.fabric}@{self.testbed}" if self.testbed else self.fabric

    def __str__(self) -> str:
        return f"{self.folder}/{self.host}" if self.host else self.folder
