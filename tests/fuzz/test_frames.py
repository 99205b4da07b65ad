"""Arbitrary bytes on a control pipe give a checked message or an error, in bounded time."""

from __future__ import annotations

import copy
import json
import os
import random
import struct
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import _frames, children, workload
from pyrdma._frames import FRAME_TO_CONTROLLER, FRAME_TO_NODE, Frames, ProtocolError
from pyrdma.errors import Timeout
from tests.errors import raises
from tests.fuzz.hostile import SECONDS, SEED, inputs
from tests.harness.support import environment

MOST = 4096
MESSAGES: list[dict[str, Any]] = [
    {
        "kind": "attach",
        "session": "shm-1-2-3",
        "token": "0123456789abcdef" * 4,
        "node": 0,
        "nodes": 2,
    },
    {"kind": "attached", "node": 1},
    {
        "kind": "run",
        "workload": "verbs_load",
        "parameters": {"size": 8, "op": "read", "theta": 0.5, "list": [1, 2]},
        "run": 1,
    },
    {
        "kind": "source",
        "module": "package.module",
        "file": "/own/package/module.py",
        "package": False,
        "piece": "x = 1",
        "first": True,
    },
    {
        "kind": "program",
        "function": {
            "file": "/own/program.py",
            "name": "main",
            "arguments": [1, None, {"a": [True, 1.5]}],
            "keywords": {"depth": 8},
            "experiments": "/own/experiments",
            "sent": True,
        },
        "options": {
            "deadline_ns": 10**10,
            "deadline_fails": True,
            "grace_ns": 10**8,
            "model": "register",
            "members": [0, 1],
        },
        "run": 1,
    },
    {"kind": "failed", "error": "no", "error_kind": "Timeout", "run": 1},
    {
        "kind": "measured",
        "metric": ["rate"],
        "unit": ["op/s"],
        "value": [1.5],
        "node": [0],
        "thread": [-1],
        "notices": ["port 1 went down"],
        "noticed_by": [0],
        "histograms": {"metric": ["read"], "encoded": ["AAAA"]},
        "histories": ["AAAA"],
        "run": 1,
    },
]
FRAMES = [_frames.encode(message, MOST) for message in MESSAGES]


def drain(frames: Frames) -> list[dict[str, Any]]:
    messages = []
    while (message := frames.next()) is not None:
        messages.append(message)
    return messages


def test_good_messages_arrive_in_any_pieces() -> None:
    stream = b"".join(FRAMES)
    for piece in (1, 3, 7, len(stream)):
        frames = Frames(MOST)
        messages = []
        for at in range(0, len(stream), piece):
            frames.feed(stream[at : at + piece])
            messages += drain(frames)
        assert messages == MESSAGES


def test_any_bytes_are_messages_or_refused() -> None:
    refused = taken = longest = 0
    for stream in inputs([*FRAMES, b"".join(FRAMES)]):
        frames = Frames(MOST)
        frames.feed(stream)
        try:
            for message in drain(frames):
                assert message == _frames.check(copy.deepcopy(message))
                taken += 1
        except ProtocolError as error:
            refused += 1
            longest = max(longest, len(str(error)))
    assert refused > 20
    assert longest < 500
    assert taken > 20


def test_any_field_of_another_kind_is_refused_or_of_use() -> None:
    choice = random.Random(SEED)
    values: list[Any] = [
        None, True, -1, 2**40, 2**64, 1.5, "", "x" * 70_000, [], [[1]], [None], {}, {"a": None},
    ]  # fmt: skip
    refused = 0
    for _ in range(int(2000 * SECONDS)):
        message = copy.deepcopy(choice.choice(MESSAGES))
        for _ in range(choice.randint(1, 3)):
            place = message
            inner = [name for name, value in message.items() if isinstance(value, dict)]
            if inner and choice.random() < 0.3:
                place = message[choice.choice(inner)]
            if not isinstance(place, dict):
                continue
            place[choice.choice([*place, "other"])] = choice.choice(values)
        try:
            _frames.check(message)
        except ProtocolError:
            refused += 1
            continue
        json.dumps(message)
        assert message["kind"] in {known["kind"] for known in MESSAGES}
        if message["kind"] == "measured":
            columns = ("metric", "unit", "value", "node", "thread")
            assert len({len(message[name]) for name in columns}) == 1
            assert len(message["notices"]) == len(message["noticed_by"])
    assert refused > 500 * SECONDS


@pytest.mark.parametrize(
    ("stream", "values"),
    [
        (b"\xff\xff\xff\xff", [4294967295, 4096]),
        (b"\x00\x00\x10\x01", [4097, 4096]),
        (b"\x00\x00\x00\x02[]", ["list"]),
        (b"\x00\x00\x00\x02{}", ["kind", "None"]),
        (b"\x00\x00\x00\x03" + b"\xff\xfe{", ["JSON"]),
        (b"\x00\x00\x0f\xa0" + b"[" * 4000, ["JSON"]),
        (b"\x00\x00\x0f\xa0" + b"9" * 4000, ["JSON"]),
        (b"\x00\x00\x00\x00", ["JSON"]),
    ],
)
def test_what_is_no_message_is_named(stream: bytes, values: list[object]) -> None:
    frames = Frames(MOST)
    frames.feed(stream)
    with raises(ProtocolError, *values):
        frames.next()


def test_a_long_message_is_not_sent() -> None:
    with raises(ProtocolError, FRAME_TO_NODE):
        _frames.send(-1, {"text": "x" * FRAME_TO_NODE}, FRAME_TO_NODE, 1)


def test_a_reader_that_stands_still_is_given_up() -> None:
    read, write = os.pipe()
    try:
        _frames.send(write, {"text": "x" * 50_000}, FRAME_TO_NODE, 1)
        with pytest.raises(Timeout):
            _frames.send(write, {"text": "x" * 50_000}, FRAME_TO_NODE, 0.2)
    finally:
        os.close(read)
        os.close(write)


def start_node() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        children.python("pyrdma._node"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


@pytest.mark.parametrize(
    "stream",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02{}",
        FRAMES[2],
        FRAMES[0],
        FRAMES[0].replace(b"shm-1-2-3", b"shm-%d-3"),
    ],
    ids=["length", "empty", "order", "session", "name"],
)
def test_a_node_ends_at_what_is_no_message(stream: bytes) -> None:
    with start_node() as node:
        said, complaints = node.communicate(stream, timeout=60)
    assert node.returncode in (0, 1)
    frames = Frames(FRAME_TO_CONTROLLER)
    frames.feed(said)
    for message in drain(frames):
        assert message["kind"] == "failed"
    assert b"0123456789abcdef" not in complaints


def test_a_node_that_speaks_nonsense_is_named() -> None:
    def nonsense(cluster: Any) -> Callable[[], None]:
        def feed() -> None:
            cluster._nodes[1]._frames.feed(struct.pack(">I", 5) + b"12345")

        return feed

    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        nonsense(cluster)()
        with raises(rd.Error, 1, "int"):
            cluster.run(workload.Idle(), duration_s=0.1)
    assert threading.active_count() < 50
