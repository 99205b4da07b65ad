"""KRCore's entries of ``pyrdma validate``."""

from __future__ import annotations

from pyrdma.validation import Validation

from .generated import KrcoreConnect, KrcoreEcho, KrcoreOneSided

__all__ = ["validations"]


def validations() -> list[Validation]:
    """Return the entries: connects, READs one by one and in lists, and messages.

    The client has a busy thread, and with messages the server has one. The threads of the services
    sleep most of the time.
    """
    return [
        Validation("krcore/connect_cached", KrcoreConnect(cached=True)),
        Validation("krcore/connect", KrcoreConnect()),
        Validation("krcore/read", KrcoreOneSided(region_bytes=65_536)),
        Validation("krcore/read_lists", KrcoreOneSided(batch=32, region_bytes=65_536)),
        Validation("krcore/echo", KrcoreEcho(server_threads=1)),
    ]
