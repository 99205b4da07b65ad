"""Processes that measure, and what is left of one whose answer could not be read."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pyrdma import workers
from pyrdma.workers import Workers


def test_a_process_whose_answer_could_not_be_read_gets_no_other_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = workers._Worker.run
    failed: list[int] = []

    def fail_once(self: workers._Worker, task: Any) -> Any:
        if failed:
            return run(self, task)
        failed.append(self.process.pid)
        self._pipe.send_bytes(task.message)  # its answer comes later
        raise MemoryError

    monkeypatch.setattr(workers._Worker, "run", fail_once)
    with Workers(1) as pool:
        with pytest.raises(MemoryError):
            pool.submit(abs, -1).result(60)
        assert pool.submit(os.getpid).result(60) not in (1, failed[0])
