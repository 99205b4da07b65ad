"""A daemon that listens: one driver at a time, and only a driver that has the token."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from select import select

from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import read_regular

from . import messages
from .channel import CONTROL, NONCE, Channel, Seal
from .daemon import Daemon

__all__ = ["listen", "read_token"]

_GREET_S = 10.0
_TOKEN = 32
_LEAVE_S = 3.0
"""Time for the driver before to be gone."""
_AGAIN_S = 0.1
_STRANGERS = 64
"""Most connections that have not proved the token yet."""


def read_token(path: Path) -> bytes:
    """Return the secret of a daemon: 64 hexadecimal digits in a file for its owner only.

    Raises
    ------
    InvalidArgument
        There is no such file, others may read it, or it holds something else.
    """
    make = f"make one: (umask 077; openssl rand -hex {_TOKEN} > {path})"
    try:
        mode = path.stat().st_mode
        text = read_regular(path, 1024).decode("ascii", errors="replace").strip()
    except FileNotFoundError:
        raise InvalidArgument(f"the token file {path} does not exist; {make}") from None
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"the token file {path} cannot be read: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidArgument(
            f"others may read the token file {path}; {make.replace('make one', 'make a new one')}"
        )
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if len(token) != _TOKEN:
        raise InvalidArgument(f"the token file {path} does not hold {2 * _TOKEN} digits; {make}")
    return token


def listen(endpoint: str, token_file: Path, *, programs: bool = False) -> None:
    """Serve drivers one after another, until a signal ends the process.

    Parameters
    ----------
    endpoint
        ``ADDRESS:PORT``.
    token_file
        The file with the token.
    programs
        Let drivers run node programs and workloads of shared libraries, and so any code.

    Raises
    ------
    InvalidArgument
        The address means all networks, or the token is wrong.
    Error
        Nobody can listen there.
    """
    token = read_token(token_file)
    address, _, port = endpoint.rpartition(":")
    address = address.strip("[]")
    if not port.isdigit() or not _is_of_a_host(address):
        raise InvalidArgument(
            f"{endpoint} is not ADDRESS:PORT with one address of this host; take 127.0.0.1, or the "
            "address on the experiment network"
        )
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the nodes end with their pipes
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        server = socket.create_server((address, int(port)), family=family, backlog=16)
    except (OSError, OverflowError) as error:
        raise Error(f"cannot listen at {endpoint}: {error}") from None
    busy = threading.Lock()
    greeting = threading.Semaphore(_STRANGERS)
    with server:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # it is gone again, or this process has too many open files for now
                time.sleep(_AGAIN_S)
                continue
            if not greeting.acquire(blocking=False):
                connection.close()
                continue
            arguments = (connection, token, busy, greeting, programs)
            try:
                threading.Thread(target=_serve, args=arguments, daemon=True).start()
            except RuntimeError:  # too many threads for now
                greeting.release()
                connection.close()


def _is_of_a_host(address: str) -> bool:
    """Return whether a text is an IP address, and not one that means all networks."""
    try:
        return not ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def _serve(
    connection: socket.socket,
    token: bytes,
    busy: threading.Lock,
    greeting: threading.Semaphore,
    programs: bool,
) -> None:
    """Serve one connection, if it proves the token and no other driver is there."""
    channel = None
    try:
        channel = _greet(connection, token)
    finally:
        greeting.release()
    if channel is None:
        return
    if not busy.acquire(timeout=_LEAVE_S):
        reason = "another driver uses its daemon; wait until that run has ended"
        with suppress(OSError, Error):
            channel.send(CONTROL, messages.encode("refused", reason=reason), 1.0)
        channel.close()
        return
    try:
        Daemon(channel, programs=programs).serve()
    finally:
        busy.release()


def _greet(connection: socket.socket, token: bytes) -> Channel | None:
    """Exchange nonces and wait for the first frame, which proves the token; None for a stranger."""
    deadline = time.monotonic() + _GREET_S
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine, theirs = secrets.token_bytes(NONCE), b""
        while len(theirs) < NONCE:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            piece = connection.recv(NONCE - len(theirs))
            if not piece:
                raise ConnectionError
            theirs += piece
        connection.sendall(mine)
        connection.settimeout(None)
    except OSError:
        connection.close()
        return None
    channel = Channel.of_socket(connection, Seal(token, theirs, mine, is_driver=False))
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select([channel.descriptor], [], [], 0.5)
            if ready and channel.receive():
                return channel
    except (EOFError, Error):
        pass
    channel.close()
    return None
