"""The replicated store with processes as nodes: its clients go on when a member's process dies."""

from __future__ import annotations

import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma.processes import ProcessCluster
from tests.kills import killed_in_run


@pytest.mark.parametrize("member", range(3))
def test_clients_go_on_without_a_member(member: int) -> None:
    load = workload.ErpcRaft(keys=20, reads=0.5)
    with rd.Cluster.local(nodes=4, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        with killed_in_run(cluster, member, after_s=0.7):
            result = cluster.run(load, duration_s=1.5, timeout_s=60)
    assert result.value("ops") > result.value("early_ops") > 0
    assert result.value("entries") < 3 * result.value("ops"), "the dead member leaves no row"
