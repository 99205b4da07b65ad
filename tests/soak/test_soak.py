"""Ten processes exchange checked traffic; every two seconds the test kills a random one.

It runs for 20 s, or two minutes with ``PYRDMA_SOAK_S=120 sh tests/run.sh python tests/soak``.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma import workload
from pyrdma.processes import ProcessCluster
from tests.leftovers import shared_memory

NODES = 10
EVERY_S = 2.0
SECOND = 1_000_000_000
SOAK_S = float(os.environ.get("PYRDMA_SOAK_S", "20"))


@dataclass
class Incarnation:
    """One process of a node, in ns of the run."""

    began: int
    killed: int | None = None


@dataclass
class Sample:
    """The resources that all processes held at a moment."""

    resident: int
    shared: int
    descriptors: int


@dataclass
class Chaos:
    """Kills and restarts nodes until `until`; records the times."""

    cluster: ProcessCluster
    until: float
    incarnations: dict[tuple[int, int], Incarnation] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    def _run(self) -> None:
        choice = random.Random(1)
        began = self.cluster.now_ns
        self.incarnations = {(node, 0): Incarnation(began) for node in range(NODES)}
        due = time.monotonic() + EVERY_S
        while due < self.until:
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + EVERY_S, time.monotonic())
            self.samples.append(measure(self.cluster.process_ids))
            node = choice.randrange(NODES)
            incarnation = self.cluster.incarnation(node)
            self.incarnations[node, incarnation].killed = self.cluster.now_ns
            self.cluster.kill(node)
            self.cluster.restart(node)
            self.incarnations[node, incarnation + 1] = Incarnation(self.cluster.now_ns)


def measure(processes: list[int]) -> Sample:
    resident = shared = descriptors = 0
    for process in [os.getpid(), *processes]:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Pss":
                resident += int(value.split()[0])
            elif name == "Pss_Shmem":
                shared += int(value.split()[0])
        descriptors += sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    return Sample(resident, shared, descriptors)


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 120)
def test_killed_nodes_are_noticed_and_nothing_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = shared_memory()
    with rd.Cluster.local(nodes=NODES, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        processes = cluster.process_ids
        chaos = Chaos(cluster, time.monotonic() + SOAK_S - 2 * EVERY_S)
        thread = threading.Thread(target=chaos.run)
        thread.start()
        soak = workload.Soak(size=4096, interval_ns=10_000_000)
        result = cluster.run(soak, duration_s=SOAK_S)
        thread.join()
        processes += cluster.process_ids
    if chaos.failure:
        raise chaos.failure

    assert result.value("wrong") == 0
    assert min(s.value for s in result.samples if s.metric == "rounds") > 100
    delays = check_notices(result, chaos.incarnations)
    kills = sum(own.killed is not None for own in chaos.incarnations.values())
    assert kills >= SOAK_S / EVERY_S * 0.6, "the restarts took too long"
    check_flat(chaos.samples)
    print(
        f"{kills} kills, {len(delays)} notices, the slowest after {max(delays) / 1e6:.0f} ms; "
        f"{result.value('rounds'):.0f} rounds; {chaos.samples[0]} to {chaos.samples[-1]}"
    )
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert shared_memory() == before
    assert list(tmp_path.iterdir()) == []


def check_notices(
    result: rd.Result, incarnations: dict[tuple[int, int], Incarnation]
) -> list[float]:
    """Every peer that knew a dead node reports it within a second; none reports a living node."""
    delays = []
    noticed: dict[tuple[tuple[int, int], tuple[int, int]], float] = {}
    for sample in result.samples:
        if not sample.metric.startswith("lost/"):
            continue
        dead, peer = (
            (int(node), int(incarnation))
            for node, _, incarnation in (
                name.partition(".") for name in sample.metric.split("/")[1:]
            )
        )
        noticed[dead, peer] = sample.value
        killed = incarnations[dead].killed
        assert killed is not None, f"{sample.metric}: it was not killed"
        delays.append(sample.value - killed)
        assert 0 <= delays[-1] <= SECOND, sample.metric
    for dead, own in incarnations.items():
        if own.killed is None or own.killed - own.began < SECOND:
            continue
        for peer, other in incarnations.items():
            knew = own.killed - other.began > SECOND
            lived = other.killed is None or other.killed > own.killed + SECOND
            if peer[0] != dead[0] and knew and lived:
                assert (dead, peer) in noticed, f"{peer} did not notice the end of {dead}"
    return delays


def check_flat(samples: list[Sample]) -> None:
    """The processes hold as much at the end as after the first quarter."""
    first, last = samples[len(samples) // 4], samples[-1]
    assert last.resident < first.resident * 1.1, samples
    assert last.shared < first.shared * 1.1 + 1024, samples
    assert last.descriptors <= first.descriptors + NODES, samples
