"""Bounds of objects, and what the answers of servers mean."""

from __future__ import annotations

from pyrdma.errors import Exhausted, InvalidArgument, Timeout

OK, NO_OBJECT, LOG_FULL = 0, 1, 4
MOST_KEY, MOST_VALUE = 65_535, 1 << 20


def checked_key(key: bytes) -> bytes:
    """Return `key` if it has not too many bytes."""
    if len(key) > MOST_KEY:
        raise InvalidArgument(f"key has {len(key)} bytes; a key has at most {MOST_KEY}")
    return key


def checked_value(value: bytes) -> bytes:
    """Return `value` if it has not too many bytes."""
    if len(value) > MOST_VALUE:
        raise InvalidArgument(f"value has {len(value)} bytes; a value has at most {MOST_VALUE}")
    return value


def check_status(status: int) -> None:
    """Raise what a server's answer stands for."""
    if status == LOG_FULL:
        raise Exhausted(
            "the server's log has no room for the object; give a larger log_bytes, or a "
            "segment_bytes above the size of the object"
        )
    if status != OK:
        raise Timeout(f"the store answers with status {status}; try again")
