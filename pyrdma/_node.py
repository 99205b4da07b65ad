"""A node process of a local cluster; started by `pyrdma.processes`, which says how they talk."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import sys
import threading
from typing import Any

from .doctor import native
from .errors import Error


def main() -> None:
    """Attach to the session named in the first message, then run workloads until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Standard output belongs to the messages: whatever else is printed goes to the other.
    answers = os.dup(1)
    os.dup2(2, 1)
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(messages,), daemon=True).start()
    first = messages.get()
    try:
        core: Any = native()
        node = core.shm.Node(
            session=first["session"],
            node=first["node"],
            nodes=first["nodes"],
            token=first["token"],
        )
    except Exception as error:
        _answer(answers, _failure(error))
        return
    _answer(answers, {"attached": first["node"]})
    while True:
        _answer(answers, _run(core, node, messages.get()))


def _listen(messages: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass messages on; when the pipe ends the controller is gone, and so is this node's use."""
    for line in sys.stdin:
        messages.put(json.loads(line))
    os._exit(0)


def _run(core: Any, node: Any, message: dict[str, Any]) -> dict[str, Any]:
    try:
        columns = core.measure.run_workload(node, message["workload"], message["parameters"])
    except Exception as error:
        return _failure(error)
    plain = {name: list(columns[name]) for name in ("metric", "unit")}
    numbers = {name: columns[name].tolist() for name in ("value", "node", "thread")}
    encoded = columns["histograms"]
    histograms = {
        "metric": list(encoded["metric"]),
        "encoded": [base64.b64encode(payload).decode() for payload in encoded["encoded"]],
    }
    return {**plain, **numbers, "histograms": histograms}


def _failure(error: Exception) -> dict[str, Any]:
    kind = type(error).__name__ if isinstance(error, Error) else "Error"
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    return {"error": text, "kind": kind}


def _answer(descriptor: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
