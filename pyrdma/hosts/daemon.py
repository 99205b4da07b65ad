"""The daemon of a host: it starts node processes for a driver, and ends with it.

``pyrdma daemon --stdio`` serves the driver that started it, by ssh or on this machine. The node
processes have pipes to the daemon alone, so they end when it does, however it ends.
"""

from __future__ import annotations

import os
import platform
import queue
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyrdma import _frames, children
from pyrdma._node_process import NodeProcess
from pyrdma._version import __version__
from pyrdma.errors import Error
from pyrdma.sources import source_digest

from . import messages
from .channel import CONTROL, Channel

__all__ = ["ORPHAN_S", "Daemon", "serve_stdio"]

ORPHAN_S = 20.0
"""Longest silence of a driver, which pings every two seconds; then its nodes end."""

_LOOK_S = 0.5
"""Period of the search for stopped nodes."""

_SEND_S = 15.0

_STOPPED = ("T", "t")


class _Slot:
    """A node process, and the bytes that its pipe has not taken yet."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.state = ""
        self.is_dropped = False  # the driver has no use for it, and its pipes will be closed
        self.waiting = bytearray()
        assert node.process.stdin is not None
        self.input = node.process.stdin.fileno()
        os.set_blocking(self.input, False)


class Daemon:
    """Serves one driver over a channel, until the driver leaves.

    The thread of the loop reads the channel and all pipes. Calls wait for each other in a second
    thread, so that a long one does not keep the loop from pings. A signal and the kill of a node
    wait for nothing, so the loop itself does them. Without `programs` the nodes refuse node
    programs.
    """

    def __init__(self, channel: Channel, *, programs: bool = True) -> None:
        self.channel = channel
        self._programs = programs
        self._slots: dict[int, _Slot] = {}
        self._dropped: dict[int, _Slot | None] = {}  # None: its start still waits for its turn
        self._is_over = False
        self._lock = threading.Lock()  # of the attributes above, and of the selector's nodes
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._calls: Any = None

    # --- the loop ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serve until the driver leaves or falls silent; then end the nodes."""
        self._selector.register(self.channel.descriptor, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._wake_read)
        worker = threading.Thread(target=self._do_work, daemon=True)
        worker.start()
        heard = next_look = time.monotonic()
        try:
            self._tell("hello", **_hello())
            while not self.channel.is_broken:
                found = self._selector.select(_LOOK_S)
                if any(key.data is None for key, _ in found):
                    heard = time.monotonic()
                elif time.monotonic() - heard >= ORPHAN_S:  # and nothing has come meanwhile
                    break
                for key, events in found:
                    if key.data is None:
                        for slot, content in self.channel.receive():
                            self._take(slot, content)
                    elif key.data == self._wake_read:
                        with suppress(BlockingIOError):
                            os.read(self._wake_read, 4096)
                    elif events & selectors.EVENT_READ:
                        self._forward(*key.data)
                    else:
                        self._flush(key.data[1])
                if self._slots and time.monotonic() >= next_look:
                    next_look = time.monotonic() + _LOOK_S
                    self._look()
        except Error as error:  # a Timeout is an OSError, too
            print(f"pyrdma daemon: {error}", file=sys.stderr, flush=True)
        except (EOFError, OSError):
            pass
        finally:
            self._work.put(None)
            self.end_nodes()
            worker.join(5)
            if self._calls is not None:
                self._calls.close()
            self.channel.close()

    def end_nodes(self) -> None:
        """End all nodes at once; no other can start."""
        with self._lock:
            self._is_over = True
            slots, self._slots = list(self._slots.values()), {}
        for slot in slots:
            slot.node.discard()
        for slot in slots:
            slot.node.end()

    def _do_work(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:
                if isinstance(error, OSError) and not isinstance(error, Error):
                    continue  # the driver is gone, as the loop will see; a Timeout is both
                print(f"pyrdma daemon: {error}", file=sys.stderr, flush=True)

    def _tell(self, kind: str, **fields: Any) -> None:
        self.channel.send(CONTROL, messages.encode(kind, **fields), _SEND_S)

    def _post(self, kind: str, **fields: Any) -> None:
        self.channel.post(CONTROL, messages.encode(kind, **fields))

    def _take(self, slot: int, content: bytes) -> None:
        if slot != CONTROL:
            with self._lock:
                target = self._slots.get(slot)
            if target is not None:
                target.waiting += content
                self._flush(target)
            return
        message = messages.decode(content, from_driver=True)
        if message["kind"] == "ping":
            self._post("pong")
            return
        messages.check_call(message)
        if message["do"] == "signal":
            self._answer(message)
            return
        if message["do"] == "end":
            self._drop(message["with"]["slot"])
        self._work.put(lambda: self._answer(message))

    def _flush(self, slot: _Slot) -> None:
        if slot.is_dropped:
            return
        try:
            while slot.waiting:
                del slot.waiting[: os.write(slot.input, slot.waiting)]
        except BlockingIOError:
            self._register(slot.input, selectors.EVENT_WRITE, (0, slot))
            return
        except OSError:  # the node has ended, which its other pipe shows
            slot.waiting.clear()
        with suppress(KeyError, ValueError):
            self._selector.unregister(slot.input)

    def _register(self, descriptor: int, events: int, data: Any) -> None:
        with suppress(KeyError):
            self._selector.register(descriptor, events, data)

    def _forward(self, number: int, slot: _Slot) -> None:
        if slot.is_dropped:
            return
        chunk = b""
        with suppress(OSError):
            chunk = os.read(slot.node.descriptor, 1 << 18)
        if chunk:
            self.channel.send(number, chunk, _SEND_S)
            return
        with suppress(KeyError, ValueError):
            self._selector.unregister(slot.node.descriptor)
        self._work.put(lambda: self._report_end(number, slot))

    def _report_end(self, number: int, slot: _Slot) -> None:
        with self._lock:
            if self._slots.get(number) is not slot:
                return  # the driver has ended it
        how = slot.node.describe_end()
        self._tell("ended", slot=number, how=how[:4096])

    def _look(self) -> None:
        with self._lock:
            slots = dict(self._slots)
        for number, slot in slots.items():
            state = children.state(slot.node.process.pid)
            if (state in _STOPPED) != (slot.state in _STOPPED):
                slot.state = state
                self._post("state", slot=number, state=state)

    # --- calls ------------------------------------------------------------------------------------

    def _answer(self, message: messages.Message) -> None:
        number, name, arguments = message["id"], message["do"], message["with"]
        own: dict[str, Callable[..., Any]] = {
            "start": self._start,
            "attach": self._attach,
            "signal": self._signal,
            "end": self._end_node,
        }
        try:
            if name not in own and self._calls is None:
                from .calls import Calls  # loads the native module, which an idle daemon saves

                self._calls = Calls(self.channel.seal)
            value = (own.get(name) or getattr(self._calls, name))(**arguments)
            content = messages.encode("answer", id=number, value=value)
        except Exception as error:
            kind = type(error).__name__ if isinstance(error, Error) else "Error"
            text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            content = messages.encode("failed", id=number, error=text[:4096], error_kind=kind)
        self.channel.send(CONTROL, content, _SEND_S)

    def _start(self, slot: int, node: int) -> int:
        unwanted = Error(f"slot {slot} was ended before its node had started")
        with self._lock:
            if slot in self._slots:
                raise Error(f"slot {slot} is taken")
            if not self._is_wanted(slot):
                raise unwanted
        made = _Slot(NodeProcess(node, programs=self._programs))
        with self._lock:
            is_wanted = self._is_wanted(slot)
            if is_wanted:
                self._slots[slot] = made
                self._register(made.node.descriptor, selectors.EVENT_READ, (slot, made))
        if not is_wanted:
            made.node.end()
            raise unwanted
        os.write(self._wake_write, b"x")
        return made.node.process.pid

    def _is_wanted(self, slot: int) -> bool:
        """Return whether the driver still has a use for a node; the caller has the lock."""
        return not self._is_over and slot not in self._dropped

    def _slot(self, number: int) -> _Slot:
        with self._lock:
            if number not in self._slots:
                raise Error(f"slot {number} has no node")
            return self._slots[number]

    def _attach(self, slot: int, message: messages.Message) -> None:
        """Send a node the message with the secret of its session, which others could read here."""
        seal = self.channel.seal
        if seal is not None and isinstance(message.get("token"), str):
            message = {**message, "token": seal.hide(message["token"], f"slot {slot}")}
        self._slot(slot).node.send(_frames.check(message))

    def _signal(self, slot: int, signal: int) -> None:
        self._slot(slot).node.process.send_signal(signal)

    def _drop(self, number: int) -> None:
        """Kill a node, in the loop's thread.

        The loop may have events of the node's pipes left. `_end_node` closes them in the other
        thread, and the next node may then get the same descriptors. So the loop forgets them here.
        """
        with self._lock:
            if number in self._dropped:
                return
            slot = self._dropped[number] = self._slots.pop(number, None)
            if slot is None:
                return
            slot.is_dropped = True
            for descriptor in (slot.node.descriptor, slot.input):
                with suppress(KeyError, ValueError):
                    self._selector.unregister(descriptor)
        slot.node.discard()

    def _end_node(self, slot: int) -> None:
        with self._lock:
            dropped = self._dropped.pop(slot, None)
        if dropped is not None:
            dropped.node.end()


def _hello() -> dict[str, Any]:
    return {
        "version": __version__,
        "digest": source_digest(),
        "python": platform.python_version(),
        "name": platform.node()[:255],
        "process": os.getpid(),
    }


def serve_stdio() -> None:
    """Serve the driver at standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reading, writing = os.dup(0), os.dup(1)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # whatever prints must not disturb the frames
    os.write(writing, messages.GREETING)
    Daemon(Channel(reading, writing)).serve()
