"""Messages between a driver and the daemon of a host, and the checks of their fields.

The driver sends calls and pings. The daemon greets or refuses, answers each call once, answers
pings, and reports nodes that end or that somebody stops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyrdma import _frames, _shapes
from pyrdma._frames import ProtocolError

__all__ = ["CALLS", "GREETING", "check_answer", "check_call", "decode", "encode"]

GREETING = b"pyrdma daemon 1\n"
"""Line before the first frame. Whatever a login shell prints comes before it."""

Message = dict[str, Any]

_MOST = 1 << 20
_ID = _shapes.integer(0, 2**53)
_NODE = _shapes.integer(0, 4095)
_TEXT = _shapes.text(4096)
_ADDRESS = _shapes.text(64)
_SLOT = _shapes.integer(1, 2**31)
_PORT = _shapes.integer(1, 65535)
_KEY = _shapes.text(64)


def _is_object(v: object) -> bool:
    return isinstance(v, dict)


def _is_file(v: object) -> bool:
    shapes = (_TEXT, _shapes.integer(0, 2**40), _shapes.text(64))
    return isinstance(v, list) and len(v) == 3 and all(s(i) for s, i in zip(shapes, v, strict=True))


def _object(**fields: _shapes.Shape) -> _shapes.Shape:
    return lambda v: _shapes.has(v, fields)


_FROM_DRIVER: Mapping[str, Mapping[str, _shapes.Shape]] = {
    "call": {"id": _ID, "do": _shapes.text(32), "with": _is_object},
    "ping": {},
}
_FROM_DAEMON: Mapping[str, Mapping[str, _shapes.Shape]] = {
    "hello": {
        "version": _shapes.text(64),
        "digest": _shapes.text(64),
        "python": _shapes.text(32),
        "name": _shapes.text(255),
        "process": _ID,
    },
    "answer": {"id": _ID, "value": lambda _: True},
    "failed": {"id": _ID, "error": _TEXT, "error_kind": _shapes.text(64)},
    "pong": {},
    "refused": {"reason": _TEXT},
    "ended": {"slot": _SLOT, "how": _TEXT},
    "state": {"slot": _SLOT, "state": _shapes.text(1)},
}
_SESSION = {"session": _ID}
_WISH: Mapping[str, _shapes.Shape] = {
    "device": _ADDRESS,
    "port": _shapes.integer(0, 255),
    "gid_index": _shapes.integer(-1, 255),
    "address": _ADDRESS,
}
CALLS: Mapping[str, Mapping[str, _shapes.Shape]] = {
    "facts": _WISH,
    "checks": {},
    "open_session": {
        "fabric": _shapes.one_of("shm", "verbs"),
        "nodes": _shapes.integer(1, 4096),
        "seed": _shapes.integer(0, 2**64 - 1),
        "address": _ADDRESS,
    },
    "close_session": _SESSION,
    "now": _SESSION,
    "incarnation": {**_SESSION, "node": _NODE},
    "forget": {**_SESSION, "node": _NODE},
    "start": {"slot": _SLOT, "node": _NODE},
    "attach": {"slot": _SLOT, "message": _is_object},
    "signal": {"slot": _SLOT, "signal": _shapes.integer(1, 64)},
    "end": {"slot": _SLOT},
    "counters": {},
    "list_results": {"after": _TEXT},
    "read_result": {"file": _TEXT, "offset": _shapes.integer(0, 2**40)},
    "clock": {},
    "serve": {"address": _ADDRESS, "key": _KEY},
    "probe": {"address": _ADDRESS, "port": _PORT, "key": _KEY, "count": _shapes.integer(1, 1000)},
}
"""What a driver may ask of a daemon, with the shapes of the arguments; `calls` describes each."""

_TIME = _shapes.integer(-(2**63), 2**63 - 1)
_ANSWERS: Mapping[str, _shapes.Shape] = {
    "facts": _shapes.mapping_of(_shapes.is_value, 256),
    "checks": _object(
        checks=_shapes.list_of(
            _object(
                ok=lambda v: isinstance(v, bool),
                **dict.fromkeys(("name", "found", "remedy", "note"), _TEXT),
            )
        )
    ),
    "open_session": _object(session=_ID, name=_shapes.text(200), token=_KEY),
    "now": _TIME,
    "incarnation": _shapes.integer(0, 2**32 - 1),
    "start": _ID,
    "counters": _object(
        ports=_shapes.mapping_of(_shapes.mapping_of(_shapes.integer(0, 2**64 - 1), 4096), 1024),
        login=_TEXT,
    ),
    "list_results": _object(files=_shapes.list_of(_is_file)),
    "read_result": _shapes.is_base64,
    "clock": _object(parts=_shapes.list_of(_shapes.integer(0, 2**64 - 1))),
    "serve": _PORT,
    "probe": _object(at_ns=_TIME, offset_ns=_TIME, bound_ns=_TIME),
}
"""Shapes of the answers; a call that is not here answers nothing."""


def encode(kind: str, **fields: Any) -> bytes:
    """Return the content of a frame of slot 0.

    Raises
    ------
    ProtocolError
        It is too long for a frame.
    """
    content = json.dumps({"kind": kind, **fields}, separators=(",", ":")).encode()
    if len(content) > _MOST:
        raise ProtocolError(f"a message {kind!r} has {len(content)} bytes; at most {_MOST} fit")
    return content


def decode(content: bytes, *, from_driver: bool) -> Message:
    """Return a message with exactly the fields of its kind.

    Raises
    ------
    ProtocolError
        The content is no message that this end may get.
    """
    if len(content) > _MOST:
        raise ProtocolError(f"a message has {len(content)} bytes; at most {_MOST} are allowed")
    value = _frames.decode(content)
    kinds = _FROM_DRIVER if from_driver else _FROM_DAEMON
    kind = value.get("kind") if isinstance(value, dict) else None
    fields = kinds.get(kind) if isinstance(kind, str) else None
    if fields is None or not isinstance(value, dict):
        raise ProtocolError(f"a message has the unknown kind {str(kind)[:40]!r}")
    if not _shapes.has({k: v for k, v in value.items() if k != "kind"}, fields):
        raise ProtocolError(f"a message {kind!r} has wrong, missing or unknown fields")
    return value


def check_call(message: Message) -> None:
    """Raise ProtocolError unless a call exists and has exactly its arguments."""
    shapes = CALLS.get(message["do"])
    if shapes is None:
        raise ProtocolError(f"a call of the unknown function {message['do']!r}")
    if not _shapes.has(message["with"], shapes):
        raise ProtocolError(f"a call of {message['do']!r} has wrong, missing or unknown arguments")


def check_answer(name: str, value: Any) -> None:
    """Raise ProtocolError unless a value is one that the call `name` may answer."""
    shape = _ANSWERS.get(name)
    if not (value is None if shape is None else shape(value)):
        raise ProtocolError(f"a wrong answer to the call {name!r}")
