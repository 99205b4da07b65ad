"""Frames between driver and daemon: whole in any pieces, and genuine over TCP."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from select import select

import pytest

from pyrdma._frames import ProtocolError
from pyrdma.errors import Timeout
from pyrdma.hosts.channel import MOST_BYTES, Channel, Seal
from tests.errors import raises
from tests.hosts.waiting import soon

TOKEN = bytes(range(32))
NONCES = b"a" * 32, b"b" * 32


def seals() -> tuple[Seal, Seal]:
    return Seal(TOKEN, *NONCES, is_driver=True), Seal(TOKEN, *NONCES, is_driver=False)


@pytest.fixture
def pipe() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    one, other = Channel.of_socket(ours, seals()[0]), Channel.of_socket(theirs, seals()[1])
    yield one, other
    one.close()
    other.close()


def sealed(*contents: bytes) -> list[bytes]:
    """Return the bytes of frames as the driver sends them."""
    read, write = os.pipe()
    channel = Channel(read, write, seals()[0])
    found = []
    for content in contents:
        channel.send(1, content, 1)
        found.append(os.read(read, 1 << 16))
    channel.close()
    return found


def receiver() -> Channel:
    return Channel(*os.pipe(), seals()[1])


def test_frames_in_any_pieces() -> None:
    stream = b"".join(sealed(b"", b"one", b"two" * 1000))
    for size in (1, 7, len(stream)):
        channel = receiver()
        found = []
        for at in range(0, len(stream), size):
            channel.feed(stream[at : at + size])
            found += channel.take()
        assert found == [(1, b""), (1, b"one"), (1, b"two" * 1000)]
        channel.close()


def test_long_content_takes_several_frames(pipe: tuple[Channel, Channel]) -> None:
    ours, theirs = pipe
    content = os.urandom(MOST_BYTES + 5)
    sender = threading.Thread(target=ours.send, args=(3, content, 10))
    sender.start()
    found: list[tuple[int, bytes]] = []
    while sum(len(piece) for _, piece in found) < len(content):
        found += theirs.receive()
    sender.join()
    assert [slot for slot, _ in found] == [3, 3]
    assert b"".join(piece for _, piece in found) == content


FRAMES = sealed(b"one", b"two")


@pytest.mark.parametrize(
    "stream",
    [
        FRAMES[0] + FRAMES[0],  # repeated
        FRAMES[1] + FRAMES[0],  # in another order
        FRAMES[0].replace(b"one", b"One"),
        FRAMES[0][:4] + b"\0\0\0\2" + FRAMES[0][8:],  # for another slot
        FRAMES[0][:-1] + bytes([FRAMES[0][-1] ^ 1]),
    ],
    ids=["repeated", "reordered", "content", "slot", "code"],
)
def test_what_a_stranger_changed_is_refused(stream: bytes) -> None:
    channel = receiver()
    channel.feed(stream)
    with raises(ProtocolError, "token"):
        channel.take()
    channel.close()


def test_frames_do_not_return_to_their_sender() -> None:
    channel = Channel(*os.pipe(), seals()[0])
    channel.feed(FRAMES[0])
    with raises(ProtocolError, "token"):
        channel.take()
    channel.close()


def test_another_token_or_nonce_gives_other_codes() -> None:
    frame = b"frame"
    right = seals()[0].sign(frame)
    assert seals()[1].is_genuine(frame, right)
    assert Seal(bytes(32), *NONCES, is_driver=True).sign(frame) != right
    assert Seal(TOKEN, NONCES[1], NONCES[1], is_driver=True).sign(frame) != right


def test_a_secret_is_hidden_on_the_way() -> None:
    driver, daemon = seals()
    secret = "0123456789abcdef" * 4
    hidden = driver.hide(secret, "slot 1")
    assert hidden != secret
    assert daemon.hide(hidden, "slot 1") == secret
    assert driver.hide(secret, "slot 2") != hidden


def test_a_frame_that_is_too_long_is_refused() -> None:
    channel = Channel(*os.pipe())
    channel.feed((MOST_BYTES + 1).to_bytes(4, "big") + bytes(4))
    with raises(ProtocolError, MOST_BYTES):
        channel.take()
    channel.close()


def test_ends_and_standstill(pipe: tuple[Channel, Channel]) -> None:
    ours, theirs = pipe
    with pytest.raises(Timeout):
        ours.send(1, bytes(MOST_BYTES), 0.3)
    theirs.close()
    with pytest.raises(OSError):  # noqa: PT011 - a broken pipe or a reset
        ours.send(1, bytes(MOST_BYTES), 1)
    with pytest.raises(EOFError):
        ours.receive()


def test_after_a_send_that_failed_nothing_follows(pipe: tuple[Channel, Channel]) -> None:
    ours, theirs = pipe
    with pytest.raises(Timeout):
        ours.send(1, bytes(MOST_BYTES), 0.2)
    assert ours.is_broken
    while select([theirs.descriptor], [], [], 0)[0]:
        assert theirs.receive() == []
    with pytest.raises(BrokenPipeError):
        ours.send(2, b"next", 1)
    with pytest.raises(BrokenPipeError):
        ours.post(2, b"next")
    assert not select([theirs.descriptor], [], [], 0.1)[0]


def test_what_is_posted_waits_for_nobody_and_follows_whole_frames(
    pipe: tuple[Channel, Channel],
) -> None:
    ours, theirs = pipe
    sender = threading.Thread(target=ours.send, args=(1, bytes(MOST_BYTES), 10))
    sender.start()
    # It has the lock, and has filled the socket.
    assert soon(lambda: ours._lock.locked() and not select([], [ours._write], [], 0)[1])
    began = time.monotonic()
    ours.post(2, b"one")
    ours.post(2, b"two")
    assert time.monotonic() - began < 1
    found: list[tuple[int, bytes]] = []
    while len(found) < 3:
        found += theirs.receive()
    sender.join()
    assert found == [(1, bytes(MOST_BYTES)), (2, b"one"), (2, b"two")]


def test_what_is_posted_to_an_end_that_does_not_read_goes_out_later() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(write, bytes(4096))
    os.set_blocking(write, True)
    channel = Channel(os.open("/dev/null", os.O_RDONLY), write)
    channel.post(0, b"one")
    os.read(read, filled)
    channel.post(0, b"two")
    receiving = Channel(read, os.dup(write))
    assert receiving.receive() == [(0, b"one"), (0, b"two")]
    receiving.close()
    channel.close()


def test_what_is_posted_while_another_thread_leaves_the_lock_goes_out() -> None:
    read, write = os.pipe()
    channel = Channel(read, write)
    lock = channel._lock

    class Contended:
        """The lock, which another thread has just held, and wants before it is released."""

        def acquire(self, blocking: bool) -> bool:
            is_taken = lock.acquire(blocking)
            if is_taken and channel._posted[-1] == (0, b"one"):
                channel._posted.clear()  # the other thread has sent it
            return is_taken

        def release(self) -> None:
            if not posted:
                posted.append(True)
                channel.post(0, b"two")
            lock.release()

    posted: list[bool] = []
    channel._lock = Contended()  # type: ignore[assignment]
    channel.post(0, b"one")
    assert select([read], [], [], 0)[0]
    assert channel.receive() == [(0, b"two")]
    channel._lock = lock
    channel.close()


@pytest.mark.parametrize("kind", ["send", "post"])
def test_a_channel_may_be_closed_in_the_midst_of_a_send(kind: str) -> None:
    """As by the garbage collector, in the thread that sends."""
    channel = Channel(*os.pipe())

    class Collecting:
        def poll(self, _: float) -> bool:
            channel.close()
            assert channel._open, "this thread uses them"
            return True

    channel._poll = Collecting()  # type: ignore[assignment]

    def send() -> None:
        with contextlib.suppress(BrokenPipeError):
            channel.send(1, b"", 1) if kind == "send" else channel.post(1, b"")

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert channel._open == set()


def test_a_second_close_leaves_the_files_of_others_alone() -> None:
    channel = Channel(*os.pipe())
    channel.close()
    others = os.pipe()  # they get the numbers that are free again
    channel.close()
    for descriptor in others:
        os.close(descriptor)
