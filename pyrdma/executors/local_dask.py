"""Measures points by processes of this machine, through a Dask scheduler on loopback.

The scheduler has certificates of its own, since other users of this machine reach its port, too.
The processes are started as those of `pyrdma.workers` are, and not by Dask's nannies: these take
`multiprocessing`, whose named semaphores stay in ``/dev/shm`` after a ``kill -9`` of all processes,
and which would run the program's main file again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from typing import Any

from pyrdma import children, provenance
from pyrdma.arguments import Jobs, checked
from pyrdma.errors import Unavailable

from .dask_client import CONNECT_S, DaskExecutor

__all__ = ["LocalDask"]

START_S = 60.0
"""Longest time for the first process to start."""

AGAIN_S = 0.2
"""Pause before another process replaces one that died."""

HOST = "127.0.0.1"


class LocalDask(DaskExecutor):
    """A Dask scheduler of this program, with processes that measure.

    Parameters
    ----------
    jobs
        Number of processes; one per core if None.
    """

    @checked
    def __init__(self, jobs: Jobs | None = None) -> None:
        super().__init__()
        self._count = jobs or provenance.usable_cores()
        self._command = children.python("pyrdma.executors._dask_worker")
        self._cluster: Any = None
        self._folder = ""
        self._ending = threading.Event()
        self._lock = threading.Lock()  # of the attribute below
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._threads: list[threading.Thread] = []

    def _start(self) -> Any:
        import dask
        from distributed import Client, Scheduler
        from distributed.deploy.spec import SpecCluster
        from distributed.security import Security

        self._folder = tempfile.mkdtemp(prefix="pyrdma-dask-")
        security = Security.temporary()
        options = {
            "protocol": "tls://",
            "security": security,
            "host": HOST,
            "local_directory": self._folder,
            "dashboard": False,
            "dashboard_address": f"{HOST}:0",
            "allowed_failures": 0,  # the sweep itself tries again, and then alone
        }
        with dask.config.set({"distributed.scheduler.http.routes": []}):
            self._cluster = SpecCluster(
                scheduler={"cls": Scheduler, "options": options},
                workers={},
                security=security,
                silence_logs=logging.CRITICAL,
            )
        settings = {
            "scheduler": self._cluster.scheduler_address,
            "folder": self._folder,
            "certificate": security.tls_worker_cert,
            "key": security.tls_worker_key,
            "authority": security.tls_ca_file,
        }
        message = json.dumps(settings).encode() + b"\n"
        for _ in range(self._count):
            self._threads.append(threading.Thread(target=self._keep, args=(message,), daemon=True))
            self._threads[-1].start()
        client = Client(self._cluster, timeout=CONNECT_S, set_as_default=False)
        try:
            client.wait_for_workers(1, timeout=START_S)
        except (TimeoutError, asyncio.TimeoutError) as error:  # two classes in Python 3.10
            client.close()
            raise Unavailable(
                f"no Dask worker has started within {START_S:g} s; the lines above say why"
            ) from error
        return client

    def _keep(self, message: bytes) -> None:
        """Keep one process running, in a thread of its own."""
        # The process inherits the mask: only this program receives Ctrl-C, and ends the process.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        while not self._ending.is_set():
            with self._lock:
                if self._ending.is_set():
                    return
                process = subprocess.Popen(self._command, stdin=subprocess.PIPE)
                self._processes.add(process)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(message)
                pipe.flush()
                process.wait()
            with self._lock:
                self._processes.discard(process)
            self._ending.wait(AGAIN_S)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes at once, and the scheduler."""
        self._ending.set()
        with self._lock:
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()
        super().shutdown(wait, cancel_futures=cancel_futures)
        if self._cluster is not None:
            self._cluster.close(timeout=10)
            self._cluster = None
        shutil.rmtree(self._folder, ignore_errors=True)
