"""The test kills a process that uses LOCO's channels: the others report it and leave no files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma.processes import ProcessCluster
from tests.errors import raises, unnamed
from tests.kills import killed_in_run
from tests.leftovers import shared_memory

WAIT_TIMEOUT_S = 2.0
CALLERS: dict[str, Any] = {"polling": "callers", "wait_timeout_ms": int(1000 * WAIT_TIMEOUT_S)}


@dataclass(frozen=True)
class Barriers(workload.LocoBarrier):
    """The peers, not the controller, report the killed node."""

    survives: ClassVar[bool] = True


@dataclass(frozen=True)
class Transactions(workload.LocoTransactions):
    """Words and locks of all nodes."""

    survives: ClassVar[bool] = True


@dataclass(frozen=True)
class Store(workload.LocoYcsb):
    """Insertions and removals wait for the acknowledgements of all nodes."""

    survives: ClassVar[bool] = True


@pytest.mark.parametrize(
    "load",
    [
        Barriers(**CALLERS),
        Transactions(threads=1, accounts=300, **CALLERS),
        Store(
            threads=1,
            window=3,
            keys=300,
            reads=0.4,
            inserts=0.2,
            removes=0.2,
            **CALLERS,
        ),
    ],
    ids=lambda load: type(load).__name__,
)
def test_survivors_name_the_killed_node(load: workload.Workload) -> None:
    before = shared_memory()
    cluster = rd.Cluster.local(nodes=3, fabric="shm", mode="process")
    assert isinstance(cluster, ProcessCluster)
    processes = cluster.process_ids
    begin = time.monotonic()
    with killed_in_run(cluster, 2, after_s=1.0), raises(rd.Error, 2) as raised:
        cluster.run(load, duration_s=60, timeout_s=60)
    # Two timeouts: a wait for a peer whose own wait must end first, then the failing reads.
    # The rest is for a busy machine.
    assert time.monotonic() - begin < 1 + 2 * WAIT_TIMEOUT_S + 5
    assert unnamed(raised.value, "SIGKILL") != [], "the peers report it, not the controller"
    cluster.close()
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert shared_memory() == before
