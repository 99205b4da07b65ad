"""A callback of Ansible: a line for each task that a host runs, `SECONDS HOST MODULE: NAME`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = "{name: spent, type: aggregate, short_description: seconds of each task of a host}"
HERE = {"assert", "debug", "fail", "set_fact", "import_role"}
"""Modules that run on the controller alone."""


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible-core has no types
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "spent"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._began: dict[tuple[str, str], float] = {}

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._began[host.name, task._uuid] = time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        self._write(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: ARG002
        self._write(result)

    def _write(self, result: Any) -> None:
        task, host = result._task, result._host.name
        module = task.action.removeprefix("ansible.builtin.")
        if module in HERE or task.delegate_to == "localhost":
            return
        took = time.monotonic() - self._began[host, task._uuid]
        with Path(os.environ["PYRDMA_TEST_SPENT"]).open("a") as file:
            file.write(f"{took:.1f} {host} {module}: {task.get_name()}\n")
