"""Refuses a worker on another machine whose code would measure something else."""

from __future__ import annotations

import platform
import sys
from typing import NamedTuple

from pyrdma.errors import Error
from pyrdma.sources import source_digest

__all__ = ["Code", "ExecutorError", "OtherCode", "other_experiment"]


class ExecutorError(Error):
    """An executor can measure no further point, so the run ends; measured points stay."""


class OtherCode(ExecutorError):
    """A worker has other code than the program; every further point would fail, too."""


class Code(NamedTuple):
    """The code of a process: a digest of this package's sources, and the version of Python."""

    sources: str
    python: str

    @classmethod
    def here(cls) -> Code:
        """Return the code of this process."""
        return cls(source_digest(), "{}.{}".format(*sys.version_info))

    def check(self) -> None:
        """Raise unless this process has this code.

        Raises
        ------
        OtherCode
            The message names the host, the difference and the remedy.
        """
        own = Code.here()
        if own.sources != self.sources:
            raise OtherCode(
                f"the worker on {platform.node()} has other sources of pyrdma ({own.sources}) than "
                f"this program ({self.sources}); install the same sources there, start its workers "
                "again, and run the same command"
            )
        if own.python != self.python:
            raise OtherCode(
                f"the worker on {platform.node()} runs Python {own.python}, and this program "
                f"Python {self.python}; start the workers with Python {self.python}"
            )


def other_experiment(
    name: str, reason: str = "has other code or another profile there"
) -> OtherCode:
    """Return the error for an experiment that is not here as it is where the program runs."""
    return OtherCode(
        f"the worker on {platform.node()} cannot measure {name}: it {reason}; copy the folder of "
        "the experiments there, start its workers again, and run the same command"
    )
