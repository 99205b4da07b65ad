"""Two Soft-RoCE guests with systemd and sshd, as the hosts of an inventory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts.commands import make_key
from tests.softroce.bed import RUN, why_not_here
from tests.softroce.conftest import check_asked_for

ADDRESSES = ("10.99.0.1", "10.99.0.2")
DISK = RUN.with_name("disk.sh")
TESTBED = "softroce"


def make_disk(kind: str) -> Path:
    """Return a disk of disk.sh, made now if there is none; skip where none can be made."""
    check_asked_for()
    done = subprocess.run(
        ["sh", str(DISK), kind], capture_output=True, text=True, check=False, timeout=900
    )
    if reason := why_not_here(done):
        pytest.skip(reason)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in bound:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in bound]


@contextmanager
def machines(disk: Path, folder: Path, limit_s: int) -> Iterator[Path]:
    """Boot two guests, and yield an inventory of them; they end with this block or this process."""
    key, known, ports = folder / "key", folder / "known_hosts", free_ports(2)
    assert make_key(key).wait(30) == 0
    host_key = disk.with_suffix(".pub").read_text().strip()
    known.write_text("".join(f"[127.0.0.1]:{port} {host_key}\n" for port in ports))
    options = f"-o UserKnownHostsFile={known} -o IdentitiesOnly=yes -o ServerAliveInterval=15"
    hosts: dict[str, dict[str, Any]] = {
        f"node-{n}": {"ansible_port": port, "pyrdma_address": ADDRESSES[n]}
        for n, port in enumerate(ports)
    }
    shared = {
        "ansible_host": "127.0.0.1",
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key),
        "ansible_ssh_common_args": options,
        "pyrdma_testbed": TESTBED,
    }
    inventory = folder / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": shared}}))

    # The command lives as long as this process holds the other end of its pipe.
    words = ["--disk", str(disk), f"{key}.pub", ",".join(map(str, ports)), "--timeout"]
    with (folder / "guests.log").open("w+") as log:
        started = subprocess.Popen(
            ["sh", str(RUN), *words, str(limit_s), "sh", "-c", "echo ready; cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder), "PYRDMA_SOFTROCE_BOOT_S": "180"},
        )
        assert started.stdin is not None
        assert started.stdout is not None
        try:
            said = started.stdout.readline()
            if said != "ready\n":
                out, _ = started.communicate()
                log.seek(0)
                done = subprocess.CompletedProcess(
                    started.args, started.returncode, said + out, log.read()
                )
                if reason := why_not_here(done):
                    pytest.skip(reason)
                pytest.fail(done.stdout + done.stderr)
            yield inventory
        finally:
            started.send_signal(signal.SIGTERM)
            started.communicate(timeout=60)
