"""Measures points by the workers of a Dask scheduler."""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any
from urllib.parse import urlsplit

from pyrdma.errors import InvalidArgument, Unavailable
from pyrdma.extras import install_extra

from .same_code import ExecutorError

__all__ = ["DaskExecutor", "DaskScheduler"]

CONNECT_S = 20.0
"""Longest time for a scheduler to answer."""

_log = logging.getLogger("pyrdma")


class DaskExecutor(Executor):
    """Passes calls to a Dask scheduler, and takes each result away from it at once.

    A result that stayed with Dask would be computed again when the worker that holds it dies.
    The call of a worker that died, or whose scheduler is gone, gets the error `BrokenProcessPool`.
    """

    address = "of this program"

    def __init__(self) -> None:
        for package in ("distributed", "cryptography"):
            _needed(package)
        # The sweep says what was lost; Dask would add tracebacks of connections that end.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._client: Any = None

    def _start(self) -> Any:
        """Return a client of the scheduler, which is started if it is ours."""
        raise NotImplementedError

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn` in a worker; see `concurrent.futures.Executor`.

        Raises
        ------
        Unavailable
            The scheduler or its workers cannot be reached.
        ExecutorError
            The scheduler has gone.
        """
        if self._client is None:
            self._client = self._start()
        if self._client.status not in ("running", "connecting"):
            raise ExecutorError(
                f"the Dask scheduler {self.address} has gone; start it again with its workers, and "
                "run the same command to continue"
            )
        future: Future[Any] = Future()
        there = self._client.submit(fn, *args, pure=False, **kwargs)
        # In the loop of the client: a thread that waits for a result waits for ever when the loop
        # ends first.
        self._client.loop.add_callback(_move, self._client, there, future)
        return future

    def kill(self) -> None:
        """Cancel the calls; those that run on workers of others end, and their results are lost."""
        self.shutdown()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the scheduler, which then forgets the calls that have not ended."""
        del wait, cancel_futures
        if self._client is not None:
            self._client.close(timeout=CONNECT_S)
            self._client = None

    def __exit__(self, *_: object) -> None:
        """Leave the scheduler."""
        self.shutdown()


def _needed(package: str) -> None:
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"{package} is missing, which --executor dask needs; install pyrdma's extra `dask` "
            f"with: {install_extra('dask')}"
        ) from error


async def _move(client: Any, there: Any, future: Future[Any]) -> None:
    """Move the outcome of a call from Dask to `future`."""
    from distributed import KilledWorker

    result: Any = None
    failure: Exception | None = None
    try:
        result = await client.gather(there, asynchronous=True)
    except (KilledWorker, CancelledError) as error:
        failure = BrokenProcessPool(f"a Dask worker was lost: {error}")
    except Exception as error:
        failure = error
    finally:
        there.release()
    if not future.set_running_or_notify_cancel():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)


class DaskScheduler(DaskExecutor):
    """Measures points by the workers of a scheduler that somebody has started.

    Parameters
    ----------
    address
        ``tls://HOST:PORT``, with the certificates of Dask's configuration. ``tcp://`` is taken on
        this machine's loopback alone, since workers and program execute whatever reaches them.

    Raises
    ------
    InvalidArgument
        The address is not one of these.
    """

    def __init__(self, address: str) -> None:
        self._is_encrypted = _check(address)
        super().__init__()
        self.address = address

    def _start(self) -> Any:
        from distributed import Client
        from distributed.security import Security

        security = Security(require_encryption=self._is_encrypted)
        missing = [
            f"distributed.comm.tls.{key}"
            for key, value in (
                ("ca-file", security.tls_ca_file),
                ("client.cert", security.tls_client_cert),
            )
            if self._is_encrypted and not value
        ]
        if missing:
            raise Unavailable(
                f"{self.address} needs the certificates of Dask's configuration: set "
                f"{' and '.join(missing)}, for example in ~/.config/dask/distributed.yaml"
            )
        try:
            client = Client(
                self.address, security=security, timeout=CONNECT_S, set_as_default=False
            )
        except (OSError, asyncio.TimeoutError) as error:  # not an OSError in Python 3.10
            raise Unavailable(
                f"no Dask scheduler answers at {self.address} within {CONNECT_S:g} s ({error}); "
                "start one there with `dask scheduler`, with the same certificates"
            ) from error
        if not client.scheduler_info()["workers"]:
            _log.warning(
                "pyrdma: the scheduler %s has no worker yet; the run waits for one", self.address
            )
        return client


def _check(address: str) -> bool:
    """Return whether an address is encrypted; refuse one where others could send code."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or address != f"{parts.scheme}://{parts.netloc}" or "@" in address:
        raise InvalidArgument(f"--executor is {address!r}; give tls://HOST:PORT")
    if parts.scheme == "tls":
        return True
    if parts.scheme != "tcp":
        raise InvalidArgument(
            f"--executor is {address!r}: pyrdma does not speak {parts.scheme}; give tls://HOST:PORT"
        )
    if not _is_loopback(host):
        raise InvalidArgument(
            f"--executor is {address!r}: Dask unpickles what it receives, so whoever reaches this "
            "port without TLS can run code as you; start scheduler and workers with "
            f"--tls-ca-file, --tls-cert and --tls-key, and give tls://{parts.netloc}"
        )
    return False


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
