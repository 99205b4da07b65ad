"""A cluster that nobody closes ends with its last reference, or with the program."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.support import environment

BEGIN = """
import gc, os, signal, sys
from pathlib import Path
import pyrdma as rd
MAKE
cluster.run(rd.workload.Soak(), duration_s=DURATION)
print(*getattr(cluster, "process_ids", []), flush=True)
"""
MAKE = {
    "process": "cluster = rd.Cluster.local(nodes=2, mode='process')",
    "thread": "cluster = rd.Cluster.local(nodes=2, mode='thread')",
    "sim": "cluster = rd.Cluster.sim(nodes=2, profile='cx5')",
}
COLLECT = """
processes = cluster.process_ids
del cluster
gc.collect()
assert not any(Path(f"/proc/{process}").exists() for process in processes)
assert os.listdir(os.environ["TMPDIR"]) == []
"""
FORK = """
if os.fork() == 0:
    sys.exit(0)
os.wait()
cluster.run(rd.workload.Idle(), duration_s=0.01)
"""
ENDS = {
    "collected": (COLLECT, 0),
    "end": ("", 0),
    "fork": (FORK, 0),
    "exit": ("sys.exit(3)", 3),
    "exception": ("held = cluster; raise KeyError", 1),
    "_exit": ("os._exit(3)", 3),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", -9),
}


@pytest.mark.parametrize(
    ("mode", "end"),
    [*(("process", end) for end in ENDS), ("thread", "exception"), ("sim", "exception")],
)
def test_nothing_is_left_of_a_cluster_that_is_not_closed(
    tmp_path: Path, mode: str, end: str
) -> None:
    statements, status = ENDS[end]
    begin = BEGIN.replace("MAKE", MAKE[mode]).replace(
        "DURATION", "1e-5" if mode == "sim" else "0.02"
    )
    done = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "-c", begin + statements],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    # In the forked copy Python itself complains of the processes of the original.
    assert end == "fork" or "ResourceWarning" not in done.stderr
    nodes = [int(word) for word in done.stdout.split()]
    assert len(nodes) == (2 if mode == "process" else 0)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{node}").exists() for node in nodes) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, (nodes, list(tmp_path.iterdir()))
        time.sleep(0.02)
