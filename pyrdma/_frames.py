"""Messages between a controller and its node processes: bounded frames of checked JSON.

A frame is a length of four bytes, big-endian, and as many bytes of one JSON object in UTF-8. The
receiver refuses a frame that is longer than its bound, and a message that does not have exactly the
fields of a known kind, before it uses any field. It never unpickles a message, and executes
none but the sources of node programs (`pyrdma._sent`).
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Mapping
from select import PIPE_BUF, select
from typing import Any

from . import _shapes
from .errors import Error, Timeout

__all__ = [
    "FRAME_TO_CONTROLLER",
    "FRAME_TO_NODE",
    "MOST_PIECE",
    "NO_PROGRAMS",
    "Frames",
    "ProtocolError",
    "check",
    "send",
]

Message = dict[str, Any]

FRAME_TO_NODE = 60 * 1024
"""Most bytes of a message to a node, so that one always fits into an empty pipe."""

FRAME_TO_CONTROLLER = 64 * 1024 * 1024
"""Most bytes of a message to the controller, enough for the histograms of many threads, and for a
history, which a node ends at 2**18 events."""

NO_PROGRAMS = "PYRDMA_NO_PROGRAMS"
"""Variable of the environment of a node process that refuses node programs."""

MOST_PIECE = 4096
"""Most characters of a piece of a source, whose 12 bytes each in JSON fit a message to a node."""

_LENGTH = struct.Struct(">I")
_NODES = 4096


class ProtocolError(Error):
    """The other end sent bytes that are not a message."""


def encode(message: Mapping[str, Any], most: int) -> bytes:
    """Return the frame of a message.

    Raises
    ------
    ProtocolError
        The message is longer than `most` bytes.
    """
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > most:
        raise ProtocolError(
            f"a message of {len(body)} bytes is longer than the bound of {most}; "
            "give fewer or shorter parameters, or measure with fewer threads"
        )
    return _LENGTH.pack(len(body)) + body


def send(descriptor: int, message: Mapping[str, Any], most: int, timeout_s: float) -> None:
    """Write a whole message to a pipe.

    Raises
    ------
    BrokenPipeError
        The other end is gone.
    Timeout
        The other end does not read.
    """
    data = encode(message, most)
    deadline = time.monotonic() + timeout_s
    while data:
        _, ready, _ = select([], [descriptor], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Timeout(f"the other process has not read its messages for {timeout_s:.0f} s")
        data = data[os.write(descriptor, data[:PIPE_BUF]) :]  # PIPE_BUF never blocks


class Frames:
    """Assembles messages from bytes.

    Parameters
    ----------
    most
        Bytes of the longest message.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._unread = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take the bytes that have arrived."""
        self._unread += chunk

    def next(self) -> Message | None:
        """Return the next message, checked, or None while it is not complete.

        Raises
        ------
        ProtocolError
            The bytes are not a message; the rest of the stream cannot be read.
        """
        if len(self._unread) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._unread)
        if length > self._most:
            raise ProtocolError(f"a frame has {length} bytes; at most {self._most} are allowed")
        end = _LENGTH.size + length
        if len(self._unread) < end:
            return None
        body = bytes(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        return check(decode(body))


def decode(body: bytes) -> object:
    """Return the JSON value of a frame.

    Raises
    ------
    ProtocolError
        The frame is not JSON, or a number in it has too many digits.
    """
    try:
        value: object = json.loads(body.decode(), parse_int=_shapes.small_integer_text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is not JSON: {error}") from error
    return value


def _is_hex(v: object) -> bool:
    return isinstance(v, str) and len(v) == 64 and all(c in "0123456789abcdef" for c in v)


_SMALL = _shapes.integer(-(2**31), 2**31 - 1)
_WIDE = _shapes.integer(-(2**63), 2**63 - 1)


def _is_parameters(v: object) -> bool:
    def is_value(item: object) -> bool:
        if isinstance(item, list):
            return all(map(_WIDE, item))
        return _WIDE(item) or isinstance(item, (float, str))

    return _shapes.mapping_of(is_value, 256)(v)


def _is_histograms(v: object) -> bool:
    fields = {
        "metric": _shapes.list_of(_shapes.text(256)),
        "encoded": _shapes.list_of(_shapes.is_base64),
    }
    return _shapes.has(v, fields) and len(v["metric"]) == len(v["encoded"])  # type: ignore[index]


def _is_counters(v: object) -> bool:
    def is_pair(item: object) -> bool:
        return isinstance(item, list) and len(item) == 2 and all(map(_WIDE, item))

    return _shapes.mapping_of(is_pair, 256)(v)


def _is_function(v: object) -> bool:
    fields: Mapping[str, _shapes.Shape] = {
        "file": _shapes.text(4096),
        "name": _shapes.text(256),
        "arguments": _shapes.list_of(_shapes.is_plain),
        "keywords": _shapes.mapping_of(_shapes.is_plain, 256),
        "experiments": _shapes.text(4096),
        "sent": lambda item: isinstance(item, bool),
    }
    return v is None or _shapes.has(v, fields)


def _is_module(v: object) -> bool:
    return _shapes.text(256)(v) and all(word.isidentifier() for word in str(v).split("."))


def _are_options(v: object) -> bool:
    fields = {
        "deadline_ns": _shapes.integer(0, 2**63 - 1),
        "deadline_fails": lambda item: isinstance(item, bool),
        "grace_ns": _shapes.integer(0, 2**63 - 1),
        "model": _shapes.text(64),
        "members": _shapes.list_of(_shapes.integer(0, _NODES - 1)),
    }
    return _shapes.has(v, fields)


_PLACE: Mapping[str, _shapes.Shape] = {
    "session": _shapes.text(200),
    "token": _is_hex,
    "node": _shapes.integer(0, _NODES - 1),
    "nodes": _shapes.integer(1, _NODES),
}
_WISH: Mapping[str, _shapes.Shape] = {
    "device": _shapes.text(64),
    "port": _shapes.integer(0, 255),
    "gid_index": _shapes.integer(-1, 65535),
    "address": _shapes.text(64),
}
_ALIKE = (("metric", "unit", "value", "node", "thread"), ("notices", "noticed_by"))
"""Fields of a message "measured" whose lists must have equal lengths."""
_KINDS: Mapping[str, Mapping[str, _shapes.Shape]] = {
    "attach": _PLACE,
    "attach_faulty": {**_PLACE, "faults": _shapes.mapping_of(_shapes.is_number, 256)},
    "attach_verbs": {**_PLACE, **_WISH},
    "attach_host": {
        **_PLACE,
        **_WISH,
        "clock": lambda v: _shapes.list_of(_shapes.integer(0, 2**64 - 1))(v) and len(v) == 3,  # type: ignore[arg-type]
        "neighbours": _shapes.integer(0, _NODES - 1),
    },
    "attached": {"node": _shapes.integer(0, _NODES - 1)},
    "count": {},
    "counted": {"faults": _is_counters},
    "run": {"workload": _shapes.text(4096), "parameters": _is_parameters, "run": _WIDE},
    "source": {
        "module": _is_module,
        "file": _shapes.text(4096),
        "package": lambda v: isinstance(v, bool),
        "piece": _shapes.text(MOST_PIECE),
        "first": lambda v: isinstance(v, bool),
    },
    "program": {"function": _is_function, "options": _are_options, "run": _WIDE},
    "failed": {"error": _shapes.text(1 << 16), "error_kind": _shapes.text(64), "run": _WIDE},
    "measured": {
        "metric": _shapes.list_of(_shapes.text(256)),
        "unit": _shapes.list_of(_shapes.text(256)),
        "value": _shapes.list_of(_shapes.is_number),
        "node": _shapes.list_of(_SMALL),
        "thread": _shapes.list_of(_SMALL),
        "notices": _shapes.list_of(_shapes.text(4096)),
        "noticed_by": _shapes.list_of(_shapes.integer(0, _NODES - 1)),
        "histograms": _is_histograms,
        "histories": _shapes.list_of(_shapes.is_base64),
        "run": _WIDE,
    },
}


def check(value: object) -> Message:
    """Return a message that has exactly the fields of its kind.

    Raises
    ------
    ProtocolError
        The message names the kind and the wrong fields.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"a message is a {type(value).__name__}, not an object")
    kind = value.get("kind")
    fields = _KINDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ProtocolError(f"a message has the unknown kind {str(kind)[:40]!r}")
    wrong = value.keys() ^ fields.keys() ^ {"kind"}
    wrong |= {name for name in fields if name in value and not fields[name](value[name])}
    if kind == "measured" and not wrong:
        for columns in _ALIKE:
            if len({len(value[name]) for name in columns}) != 1:
                wrong |= set(columns)
    if wrong:
        names = ", ".join(sorted(str(name)[:40] for name in wrong))
        raise ProtocolError(f"a message {kind!r} has wrong, missing or unknown fields: {names}")
    return value
