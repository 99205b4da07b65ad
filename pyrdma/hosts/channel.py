"""Frames between a driver and the daemon of a host, over pipes or an authenticated connection.

A frame is a length and a slot of four bytes each, big-endian, then the content. Slot 0 carries
messages of JSON (`pyrdma.hosts.messages`); another slot carries the bytes of one node's pipe.

Over TCP, a frame also has an HMAC-SHA256 over its direction, its number and its bytes, under a key
that both ends derive from the daemon's token and a nonce of each end. Nobody else can insert,
repeat, reorder or change a frame; the frames are not encrypted.
"""

from __future__ import annotations

import errno
import hmac
import os
import secrets
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from select import PIPE_BUF, POLLOUT, poll

from pyrdma._frames import ProtocolError
from pyrdma.errors import Error, Timeout

__all__ = ["CONTROL", "MOST_BYTES", "MOST_POSTED", "NONCE", "Channel", "Seal"]

CONTROL = 0
"""Slot of the messages between driver and daemon themselves."""

MOST_BYTES = 1 << 20
"""Most bytes of a frame's content. Longer messages of nodes take several frames."""

MOST_POSTED = 2048
"""Most bytes of a posted frame's content, so that it is written at once."""

NONCE = 32

_HEADER = struct.Struct(">II")
_NUMBER = struct.Struct(">Q")
_MAC = 32


class Seal:
    """Authenticates the frames of one connection.

    Parameters
    ----------
    token
        The daemon's secret.
    driver, daemon
        The nonces of both ends.
    is_driver
        Whether this process is the driver.
    """

    def __init__(self, token: bytes, driver: bytes, daemon: bytes, *, is_driver: bool) -> None:
        key = hmac.digest(token, b"pyrdma daemon 1" + driver + daemon, "sha256")
        to_daemon, to_driver = (hmac.digest(key, way, "sha256") for way in (b"to", b"from"))
        self._out, self._in = (to_daemon, to_driver) if is_driver else (to_driver, to_daemon)
        self._pad = hmac.digest(key, b"pad", "sha256")
        self._sent = self._received = 0

    def sign(self, frame: bytes) -> bytes:
        """Return the code of the next frame to send."""
        self._sent += 1
        return hmac.digest(self._out, _NUMBER.pack(self._sent) + frame, "sha256")

    def is_genuine(self, frame: bytes, code: bytes) -> bool:
        """Return whether the next received frame has the right code."""
        self._received += 1
        right = hmac.digest(self._in, _NUMBER.pack(self._received) + frame, "sha256")
        return hmac.compare_digest(right, code)

    def hide(self, secret: str, name: str) -> str:
        """Return a secret of 64 hexadecimal digits as others cannot read it; again: the secret.

        `name` must differ between secrets of one connection.
        """
        pad = hmac.digest(self._pad, name.encode(), "sha256")
        return bytes(a ^ b for a, b in zip(bytes.fromhex(secret), pad, strict=True)).hex()


class Channel:
    """A stream of frames. Any thread may send; one thread receives.

    A frame that has begun and does not end would garble all that follow. So after a send that
    failed, the channel sends nothing more.

    Parameters
    ----------
    read, write
        Descriptors, owned by the channel.
    seal
        Authenticates the frames; None over pipes, which only the two processes have.

    Attributes
    ----------
    is_broken
        Whether a send has failed.
    """

    def __init__(self, read: int, write: int, seal: Seal | None = None) -> None:
        self.descriptor = read
        self._write = write
        self.seal = seal
        self.is_broken = False
        self._unread = bytearray()
        self._posted: deque[tuple[int, bytes]] = deque()
        self._lock = threading.Lock()  # of the stream to the other end, and of its descriptor
        self._poll = poll()
        self._poll.register(write, POLLOUT)
        self._open = {read, write}
        self._closed = False

    @classmethod
    def of_socket(cls, connection: socket.socket, seal: Seal) -> Channel:
        """Return the channel over a connected socket, which it takes over."""
        descriptor = connection.detach()
        return cls(descriptor, descriptor, seal)

    def send(self, slot: int, content: bytes, timeout_s: float) -> None:
        """Send a frame, or several if `content` is long.

        Raises
        ------
        OSError
            The other end is gone, or a send before has failed.
        Timeout
            The other end does not read.
        """
        deadline = time.monotonic() + timeout_s
        try:
            with self._lock:
                for start in range(0, max(1, len(content)), MOST_BYTES):
                    piece = content[start : start + MOST_BYTES]
                    self._put(self._frame(slot, piece), deadline)
        finally:
            self._close_if_told()
        self._flush()

    def post(self, slot: int, content: bytes) -> None:
        """Send a frame of at most `MOST_POSTED` bytes without waiting for anything.

        If the other end does not read, or another thread sends, the frame goes out after the
        thread's frames, or with the next call.

        Raises
        ------
        OSError
            The other end is gone, or a send before has failed.
        """
        assert len(content) <= MOST_POSTED
        self._posted.append((slot, content))
        self._flush()

    def _flush(self) -> None:
        """Send what has been posted, as far as that needs no waiting.

        A thread that finds the lock taken leaves its frame to the holder, which looks again after
        it has released the lock.
        """
        while self._posted and self._lock.acquire(blocking=False):
            try:
                # What is ready takes a posted frame at once: a pipe has room for PIPE_BUF bytes,
                # a socket for a third of its buffer.
                if not self._posted:
                    continue  # another thread may post before this one releases the lock
                if not self._is_ready(0):
                    return
                self._put(self._frame(*self._posted.popleft()), time.monotonic())
            finally:
                self._lock.release()
                self._close_if_told()

    # The caller of these has the lock.

    def _frame(self, slot: int, content: bytes) -> bytes:
        frame = _HEADER.pack(len(content), slot) + content
        return frame + self.seal.sign(frame) if self.seal else frame

    def _put(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        try:
            while view:
                left = deadline - time.monotonic()
                if self._is_ready(max(0.0, min(left, 0.5))):
                    # A pipe that is ready takes PIPE_BUF bytes without blocking.
                    view = view[os.write(self._write, view[:PIPE_BUF]) :]
                elif left <= 0:
                    raise Timeout("the other end does not read its messages")
        except BaseException:
            self.is_broken = True
            raise

    def _is_ready(self, wait_s: float) -> bool:
        if self._closed or self.is_broken:
            raise BrokenPipeError(errno.EPIPE, "nothing more can be sent")
        return bool(self._poll.poll(wait_s * 1000))

    def receive(self) -> list[tuple[int, bytes]]:
        """Return the whole frames that have come; call it when the descriptor is readable.

        Raises
        ------
        EOFError
            The other end is gone.
        ProtocolError
            A frame is too long, or somebody has altered it.
        """
        try:
            chunk = os.read(self.descriptor, 1 << 20)
        except (ConnectionError, OSError) as error:
            raise EOFError from error
        if not chunk:
            raise EOFError
        self._unread += chunk
        return self.take()

    def feed(self, chunk: bytes) -> None:
        """Take bytes that something else has read from the descriptor."""
        self._unread += chunk

    def take(self) -> list[tuple[int, bytes]]:
        """Return the whole frames among the bytes that have come."""
        found = []
        extra = _MAC if self.seal else 0
        at = 0
        while len(self._unread) - at >= _HEADER.size:
            length, slot = _HEADER.unpack_from(self._unread, at)
            if length > MOST_BYTES:
                raise ProtocolError(f"a frame has {length} bytes; at most {MOST_BYTES} are allowed")
            end = at + _HEADER.size + length
            if len(self._unread) < end + extra:
                break
            frame = bytes(self._unread[at:end])
            if self.seal and not self.seal.is_genuine(
                frame, bytes(self._unread[end : end + extra])
            ):
                raise ProtocolError("a frame does not come from the holder of the token")
            found.append((slot, frame[_HEADER.size :]))
            at = end + extra
        del self._unread[:at]
        return found

    def close(self) -> None:
        """Close the descriptors, once no thread sends. Idempotent.

        It waits for no thread. The garbage collector may call it in one that sends, which would
        wait for itself.
        """
        self._closed = True  # a thread that waits to send gives up
        self._close_if_told()

    def _close_if_told(self) -> None:
        """Close the descriptors after `close`, unless a thread sends; it does so when it leaves."""
        if not self._closed or not self._lock.acquire(blocking=False):
            return
        try:
            descriptors, self._open = self._open, set()
            for descriptor in descriptors:
                with suppress(OSError):
                    os.close(descriptor)
        finally:
            self._lock.release()


def connect(address: str, port: int, token: bytes, timeout_s: float) -> Channel:
    """Connect to a daemon that listens, and prove the token to each other.

    Raises
    ------
    OSError
        Nobody listens there.
    Error
        The other end does not have the token, or does not answer in time.
    """
    deadline = time.monotonic() + timeout_s
    connection = socket.create_connection((address, port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine = secrets.token_bytes(NONCE)
        connection.sendall(mine)
        theirs = b""
        while len(theirs) < NONCE:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            piece = connection.recv(NONCE - len(theirs))
            if not piece:
                raise Error("it closed the connection at once: another driver may use it")
            theirs += piece
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return Channel.of_socket(connection, Seal(token, mine, theirs, is_driver=True))
