"""Arbitrary bytes between driver and daemon give a checked message or an error."""

from __future__ import annotations

import os
import random

from pyrdma._frames import ProtocolError
from pyrdma.errors import Error
from pyrdma.hosts import messages
from pyrdma.hosts.channel import CONTROL, Channel, Seal
from pyrdma.hosts.daemon import Daemon
from tests.fuzz.hostile import SECONDS, SEED, inputs

SESSION = {"fabric": "shm", "nodes": 2, "seed": 1, "address": ""}
PROBE = {"address": "127.0.0.1", "port": 9, "key": "00", "count": 1}
CALLS = [
    messages.encode("call", id=1, do="start", **{"with": {"slot": 1, "node": 0}}),
    messages.encode("call", id=2, do="open_session", **{"with": SESSION}),
    messages.encode("call", id=3, do="probe", **{"with": PROBE}),
    messages.encode("ping"),
]
TOLD = [
    messages.encode("hello", version="1", digest="ab", python="3.11", name="a", process=1),
    messages.encode("answer", id=1, value={"parts": [1, 2, 3]}),
    messages.encode("failed", id=1, error="no", error_kind="Timeout"),
    messages.encode("ended", slot=1, how="was killed"),
    messages.encode("state", slot=1, state="T"),
    messages.encode("refused", reason="busy"),
]


def test_any_message_of_a_driver_is_a_call_or_refused() -> None:
    taken = refused = longest = 0
    for content in inputs(CALLS):
        try:
            message = messages.decode(content, from_driver=True)
            if message["kind"] == "call":
                messages.check_call(message)
                shapes = messages.CALLS[message["do"]]
                assert message["with"].keys() == shapes.keys()
        except ProtocolError as error:
            refused += 1
            longest = max(longest, len(str(error)))
        else:
            taken += 1
    assert longest < 500
    assert refused > 20
    assert taken > 20


def test_any_message_of_a_daemon_is_known_or_refused() -> None:
    taken = refused = 0
    for content in inputs(TOLD):
        try:
            message = messages.decode(content, from_driver=False)
            if message["kind"] == "answer":
                messages.check_answer("clock", message["value"])
        except ProtocolError:
            refused += 1
        else:
            taken += 1
    assert refused > 20
    assert taken > 20


def test_any_bytes_on_a_channel_are_frames_or_refused() -> None:
    streams = [frame(content) for content in CALLS]
    taken = refused = 0
    for stream in inputs([*streams, b"".join(streams)]):
        channel = Channel(*os.pipe())
        channel.feed(stream)
        try:
            taken += len(channel.take())
        except ProtocolError:
            refused += 1
        channel.close()
    assert taken > 20
    assert refused > 20


def test_no_altered_frame_is_genuine() -> None:
    token = bytes(32)
    choice = random.Random(SEED)
    for _ in range(int(500 * SECONDS)):
        ours = Seal(token, token, token, is_driver=True)
        theirs = Seal(token, token, token, is_driver=False)
        good = frame(choice.choice(CALLS))
        stream = bytearray(good + ours.sign(good))
        stream[choice.randrange(8, len(stream))] ^= 1 << choice.randrange(8)
        channel = Channel(*os.pipe(), theirs)
        channel.feed(bytes(stream))
        try:
            assert channel.take() == []
        except ProtocolError:
            pass
        else:
            raise AssertionError("an altered frame was taken")
        finally:
            channel.close()


def test_a_daemon_ends_at_what_is_no_message() -> None:
    for stream in (b"\xff" * 8, frame(b"{}"), frame(b'{"kind":"call","id":1,"do":"x","with":{}}')):
        read, write = os.pipe()
        other, answers = os.pipe()
        os.write(write, stream)
        served = Daemon(Channel(read, answers))
        served.serve()
        told = Channel(other, write)
        kinds = {messages.decode(content, from_driver=False)["kind"] for _, content in drain(told)}
        assert kinds == {"hello"}
        told.close()


def drain(channel: Channel) -> list[tuple[int, bytes]]:
    found = []
    try:
        while True:
            found += channel.receive()
    except (EOFError, Error):
        return found


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + CONTROL.to_bytes(4, "big") + content
