"""A Dask worker on this machine. `pyrdma.executors.local_dask` starts it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import threading
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Work for a scheduler until standard input ends; its first line holds the settings."""
    settings = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_program, args=(settings["folder"],), daemon=True).start()
    asyncio.run(_work(settings))


def _end_with_program(folder: str) -> None:
    """End this process when the program has ended, even during a measurement."""
    sys.stdin.read()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


async def _work(settings: dict[str, Any]) -> None:
    import dask
    from distributed import Worker
    from distributed.security import Security

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = Security(
        require_encryption=True,
        tls_ca_file=settings["authority"],
        tls_worker_cert=settings["certificate"],
        tls_worker_key=settings["key"],
    )
    with dask.config.set({"distributed.worker.http.routes": []}):
        worker = await Worker(
            settings["scheduler"],
            security=security,
            host="127.0.0.1",
            protocol="tls://",
            nthreads=1,
            memory_limit=0,
            local_directory=settings["folder"],
            dashboard_address="127.0.0.1:0",
        )
    await worker.finished()
