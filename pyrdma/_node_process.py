"""The controller's side of one node process: its start, its pipes, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from . import _frames, children

__all__ = ["START_S", "NodeProcess"]

START_S = 60.0
"""Longest time from the start of the nodes until all have attached."""

END_S = 8.0
"""Longest time from a process's end until the kernel has closed its RDMA device."""


class NodeProcess:
    """One node process, its pipes, and the file with its standard error."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.killed = False
        self.stderr_file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - end() closes it
        self.process = subprocess.Popen(
            children.python("pyrdma._node"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr_file,
            start_new_session=True,  # only the controller receives Ctrl-C
        )
        self._frames = _frames.Frames(_frames.FRAME_TO_CONTROLLER)

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the other pipe shows the node's end
            descriptor = self.process.stdin.fileno()
            _frames.send(descriptor, message, _frames.FRAME_TO_NODE, START_S)

    @property
    def descriptor(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def receive(self) -> dict[str, Any] | None:
        """Return a message once a whole one has come; call it when the pipe is readable."""
        chunk = os.read(self.descriptor, 1 << 20)
        if not chunk:
            raise EOFError
        self._frames.feed(chunk)
        return self._frames.next()

    def describe_end(self) -> str:
        """Describe how the process ended, with its last line of standard error."""
        name = f"node {self.number} (process {self.process.pid})"
        try:
            code = self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            return f"{name} closed its pipe"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with status {code}"
        self.stderr_file.seek(0)
        said = self.stderr_file.read().decode(errors="replace").strip().splitlines()
        return f"{name} {how}" + (f": {said[-1]}" if said else "")

    def end(self) -> None:
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.stderr_file):
            assert stream is not None
            with suppress(OSError):
                stream.close()
