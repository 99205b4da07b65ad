"""A worker process. `pyrdma.workers` starts it; tasks and results pass over its standard input.

That input is a socket that only the two processes have, so messages may be pickles.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from .errors import Error

__all__ = ["main"]


def main() -> None:
    """Run tasks until an empty message; end at once if the other end is gone."""
    pipe: Connection[Any, Any] = Connection(os.dup(0))
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, messages), daemon=True).start()
    while message := messages.get():
        answer = _answer(message)
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.send_bytes(answer)


def _listen(pipe: Connection[Any, Any], messages: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on; end the process when the other end is gone, even during a task."""
    try:
        while True:
            messages.put(pipe.recv_bytes())
    except (EOFError, OSError):
        os._exit(1)


def _answer(message: bytes) -> Any:
    """Run a task; return a pickle of its result, or of its error and the text of the traceback."""
    try:
        call, arguments, named = ForkingPickler.loads(message)
        return ForkingPickler.dumps((call(*arguments, **named), None, ""))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            packed = ForkingPickler.dumps((None, error, text))
            ForkingPickler.loads(packed)  # some errors cannot be made again
        except Exception:
            packed = ForkingPickler.dumps((None, Error(f"{type(error).__name__}: {error}"), text))
        return packed
