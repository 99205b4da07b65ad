"""A node process of a local cluster. `pyrdma.processes` starts it and describes the messages."""

from __future__ import annotations

import base64
import os
import queue
import shutil
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._frames import FRAME_TO_CONTROLLER, FRAME_TO_NODE, NO_PROGRAMS, Frames, Message, encode
from ._native import native
from ._program import function_at
from ._sent import SentSources
from .errors import Error, Unavailable

STORAGE = "pyrdma-storage-"  # kPrefix of native/env/thread/thread_storage.cc
"""Start of the names of storage folders; `ThreadStorage` of the native module makes them."""
RUN = "pyrdma-run-"
"""Start of the names of the files that a run's processes lock while the folders are of use."""


def main() -> None:
    """Attach to the session of the first message, then run workloads until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Standard output carries the messages, so all other output goes to standard error.
    answers = os.dup(1)
    os.dup2(2, 1)
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    first = messages.get()
    try:
        core: Any = native()
        place = {name: first[name] for name in ("session", "node", "nodes", "token")}
        if first["kind"] in ("attach_verbs", "attach_host"):
            wish = {name: first[name] for name in ("device", "port", "gid_index", "address")}
            if first["kind"] == "attach_host":
                wish["clock"] = core.ibverbs.Clock.from_parts(first["clock"])
                wish["neighbours"] = first["neighbours"]
            node = core.ibverbs.Node(**place, **wish)
        else:
            node = core.shm.Node(**place, faults=first.get("faults", {}))
    except Exception as error:
        _answer(answers, _failure(error, 0, first.get("token", "")))
        return
    _answer(answers, {"kind": "attached", "node": first["node"]})
    sent = SentSources()
    while True:
        message = messages.get()
        if message["kind"] == "source":
            if not _refuses_programs():
                sent.take(message)
            continue
        counting = message["kind"] == "count"
        _answer(answers, _count(node) if counting else _run(core, node, message, sent))


def _refuses_programs() -> bool:
    return NO_PROGRAMS in os.environ


def _listen(messages: queue.SimpleQueue[Message]) -> None:
    """Pass messages on; end the process when the pipe ends, since the controller is gone."""
    frames = Frames(FRAME_TO_NODE)
    try:
        while chunk := os.read(0, 1 << 16):
            frames.feed(chunk)
            while (message := frames.next()) is not None:
                messages.put(message)
    except Error as error:
        print(error, file=sys.stderr, flush=True)
    _remove_storage()
    os._exit(0)


def _remove_storage() -> None:
    """Remove the storage that this process holds open, since no destructor will run."""
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held = link.readlink()
            if held.name.startswith(STORAGE) and held.is_dir():
                shutil.rmtree(held, ignore_errors=True)
            elif held.name.startswith(RUN):
                held.unlink()


def _count(node: Any) -> Message:
    counters = {key: list(counts) for key, counts in node.fault_counters().items() if any(counts)}
    return {"kind": "counted", "faults": counters}


def _run(core: Any, node: Any, message: Message, sent: SentSources) -> Message:
    run = message["run"]
    try:
        # The controller numbers the runs, since a restarted node has not seen the earlier ones.
        if message["kind"] == "program":
            if _refuses_programs():
                raise Unavailable(
                    "the daemon of this host takes no node programs, which are any Python code; "
                    "start it with: pyrdma daemon --listen ... --programs"
                )
            sent.begin()
            address = message["function"]
            own = {} if address is None else {node.devices[0].node: function_at(address, sent)}
            columns = core.program.run(node, own, run=run, **message["options"])
        else:
            if _refuses_programs() and ".so:" in message["workload"]:
                raise Unavailable(
                    f"the daemon of this host loads no library, as {message['workload']!r} needs; "
                    "start it with: pyrdma daemon --listen ... --programs"
                )
            parameters = {**message["parameters"], "run": run}
            columns = core.measure.run_workload(node, message["workload"], parameters)
    except Exception as error:
        return _failure(error, run)
    names = ("metric", "unit", "value", "node", "thread", "notices", "noticed_by")
    plain = {name: columns[name] for name in names}
    encoded = columns["histograms"]
    histograms = {
        "metric": list(encoded["metric"]),
        "encoded": [base64.b64encode(payload).decode() for payload in encoded["encoded"]],
    }
    histories = [base64.b64encode(text).decode() for text in columns["histories"]]
    return {
        "kind": "measured",
        "run": run,
        **plain,
        "histograms": histograms,
        "histories": histories,
    }


def _failure(error: Exception, run: int, secret: str = "") -> Message:
    kind = type(error).__name__ if isinstance(error, Error) else "Error"
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    places = traceback.extract_tb(error.__traceback__)
    if places and not places[-1].filename.startswith(str(Path(__file__).parent)):
        text += f" ({places[-1].filename}:{places[-1].lineno})"  # in a node program
    if secret:  # the error of a wrong call of a native function shows all arguments
        text = text.replace(secret, "(token)")
    return {"kind": "failed", "error": text[: 1 << 12], "error_kind": kind, "run": run}


def _answer(descriptor: int, message: Message) -> None:
    try:
        data = encode(message, FRAME_TO_CONTROLLER)
    except Error as error:
        data = encode(_failure(error, int(message["run"])), FRAME_TO_CONTROLLER)
    while data:
        data = data[os.write(descriptor, data) :]
