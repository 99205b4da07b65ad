"""Headless Chromium, driven through its debugging pipe: what a page shows, says and asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from select import select
from typing import Any

__all__ = ["SAID", "Browser", "chromium"]

SAID = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
"""Events of what a page says on the console."""

Message = dict[str, Any]


def chromium() -> str | None:
    """Return the program, or None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """A page of a browser of its own.

    Parameters
    ----------
    profile
        Folder for the browser's files.
    """

    def __init__(self, profile: Path) -> None:
        program = chromium()
        assert program is not None
        theirs, self._out = os.pipe()
        self._in, back = os.pipe()
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        # Chromium reads commands from descriptor 3 and writes to 4.
        line = f'exec 3<&{theirs} 4>&{back}; exec "$0" "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", line, *command, "--remote-debugging-pipe"],
            pass_fds=(theirs, back),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(back)
        self._number, self._unread = 0, b""
        self._session: Message = {}
        self.events: list[Message] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def call(self, method: str, **arguments: Any) -> Message:
        """Send a command and return its result."""
        self._number += 1
        text = {"id": self._number, "method": method, "params": arguments, **self._session}
        os.write(self._out, json.dumps(text).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            self.events.append(message)
        assert "error" not in message, message
        result: Message = message["result"]
        return result

    def _next(self) -> Message:
        deadline = time.monotonic() + 60
        while b"\0" not in self._unread:
            ready, _, _ = select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            assert chunk, "the browser has ended, or does not answer"
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\0")
        message: Message = json.loads(line)
        return message

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Load a file in a window of this size; `events` are then of this page."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.named("Page.loadEventFired"):
            self.events.append(self._next())
        self.evaluate("0")  # what the page has said until now has arrived

    def named(self, *methods: str) -> list[Message]:
        """Return the parameters of the events of these names."""
        return [e["params"] for e in self.events if e.get("method") in methods]

    def requests(self) -> set[str]:
        """Return the addresses that the page has asked for, without those that hold their data."""
        asked = self.named("Network.requestWillBeSent")
        return {e["request"]["url"] for e in asked if not e["request"]["url"].startswith("data:")}

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]
