"""A daemon that listens, as a process of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.support import environment
from tests.hosts.waiting import soon


@contextmanager
def listening(token_file: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield a daemon and its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    words = ["daemon", "--listen", endpoint, "--token-file", str(token_file), *options]
    with subprocess.Popen([sys.executable, "-m", "pyrdma", *words], env=environment()) as process:
        address, _, port = endpoint.partition(":")

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((address, int(port))) == 0

        try:
            assert soon(answers)
            yield process, endpoint
        finally:
            process.terminate()
