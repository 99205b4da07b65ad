"""What is left of a peer when the process that measures it is killed: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrdma.bench import peers

# The first run compiles. The second is under way when the process is killed.
RUN = """
import sys
from pyrdma.bench import peers
module = peers.load(sys.argv[1])
module.run(seconds=0.01)
print("ready", flush=True)
module.run(seconds=20)
"""
WITH_PARENT = """
import sys, time
from pyrdma.bench import peer
with peer.shared_memory_folder() as folder, peer.started(sys.argv[1:] + [str(folder)]) as child:
    print(folder, child.stdout.readline().strip(), flush=True)
    time.sleep(60)
"""


def processes_of(mark: str) -> list[str]:
    """Return the commands of the processes with `mark` in their arguments; zombies have none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if mark in command:
            found.append(command.replace("\0", " "))
    return found


def nothing_left(mark: str, seconds: float = 10) -> bool:
    """Return whether processes and folders with `mark` in their names end within a time."""
    deadline = time.monotonic() + seconds
    while processes_of(mark) or any(Path("/dev/shm").glob(f"{mark}*")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    "name", ["redis_wait", "ucx_am", "grpc_calls", "etcd", "cyclonedds", "corosync"]
)
def test_a_peer_ends_with_a_killed_parent(name: str) -> None:
    module = peers.load(name)
    there = module.available()
    if not there.ok:
        pytest.skip(f"{module.NAME}: {there.reason}; to get it: {there.install_command}")
    with subprocess.Popen(
        [sys.executable, "-c", RUN, name], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        mark = f"pyrdma-peer-{parent.pid}-"
        assert parent.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 20
        # UCX's programs have the folder in their environment alone; its remover always names it.
        # Cyclone DDS has no folder.
        named = {"ucx_am": 1, "cyclonedds": 0}.get(name, 2)
        while len(processes_of(mark)) < named:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        children = sorted(_descendants(parent.pid))
        assert len(children) >= 4, "the remover, and the program with those that watch over it"
        os.kill(parent.pid, signal.SIGKILL)
    assert nothing_left(mark)
    deadline = time.monotonic() + 10
    while running := [pid for pid in children if _runs(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.02)


def test_a_folder_is_removed_although_the_parent_and_its_child_are_killed() -> None:
    writing = 'echo $$; while true; do mkdir -p "$0/x"; echo >"$0/x/y"; done 2>/dev/null'
    command = [sys.executable, "-c", WITH_PARENT, "sh", "-c", writing]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder, child = parent.stdout.readline().split()
        assert _runs(int(child))
        assert Path(folder).is_dir()
        os.kill(parent.pid, signal.SIGKILL)
    assert nothing_left(Path(folder).name)
    assert not _runs(int(child))


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _runs(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], ["Z"])


def _descendants(pid: int) -> set[int]:
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields:
            parents[int(folder.name)] = int(fields[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more
