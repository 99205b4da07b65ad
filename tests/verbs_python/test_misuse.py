"""Misuse from Python never crashes the process: a call raises, or a request fails."""

import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import pyrdma as rd
from pyrdma import verbs

ERRORS = (rd.Error, ValueError, TypeError, BufferError, MemoryError, OverflowError)
CALLS = 10_000


class Chaos:
    """Draws calls with wrong arguments, wrong order and closed objects."""

    def __init__(self, cluster: Any, seed: int) -> None:
        self.random = random.Random(seed)
        self.devices: list[Any] = list(cluster.devices)
        self.domains = [device.protection_domain() for device in self.devices]
        self.queues = [device.completion_queue(64) for device in self.devices]
        self.regions = [domain.allocate(4096, verbs.ALL_ACCESS) for domain in self.domains]
        self.pairs: list[Any] = []
        self.shared: list[Any] = []
        self.handles: list[Any] = []
        self.arrays: list[Any] = []
        for transport in ("rc", "rc", "ud"):
            for domain, queue in zip(self.domains, self.queues, strict=True):
                self.pairs.append(domain.queue_pair(queue, transport=transport, max_inline=64))
        self.pairs[0].connect(self.pairs[1].address)
        self.pairs[1].connect(self.pairs[0].address)

    def number(self) -> int:
        pick = self.random.random
        wild = [0, 1, 63, 64, 4096, 4097, 2**16, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -1]
        return self.random.choice(wild) if pick() < 0.7 else self.random.randrange(2**20)

    def any_of(self, *pools: list[Any]) -> Any:
        everything = [item for pool in pools for item in pool] or [None]
        return self.random.choice(
            [*everything, None] if self.random.random() < 0.05 else everything
        )

    def sge(self) -> Any:
        region = self.any_of(self.regions)
        if self.random.random() < 0.6:
            return region.sge(self.random.randrange(4096), self.random.randrange(200))
        lkey = region.lkey if self.random.random() < 0.5 else self.number()
        return verbs.Sge(self.number(), self.number(), lkey)

    def request(self) -> Any:
        region = self.any_of(self.regions)
        remote = region.remote
        if self.random.random() < 0.4:
            remote = verbs.RemoteRegion(self.number(), self.number(), self.number(), self.number())
        return verbs.Request(
            self.random.choice(list(verbs.Opcode)),
            [self.sge() for _ in range(self.random.choice([0, 1, 1, 1, 2, 9]))],
            wr_id=self.random.randrange(100),
            flags=self.random.randrange(8),
            remote_addr=remote.addr + self.random.choice([0, 0, 8, 3, 4090]),
            rkey=remote.rkey,
            compare_add=self.random.randrange(2**64),
            address_handle=self.any_of(self.handles),
        )

    def rows(self) -> Any:
        rows = verbs.requests(self.random.randrange(6))
        for name in rows.dtype.names or ():
            width = 8 * rows.dtype[name].itemsize
            rows[name] = [self.random.getrandbits(width) for _ in range(len(rows))]
        if len(rows) and self.random.random() < 0.8:
            rows["opcode"] %= 9
            rows["lkey"] = self.regions[0].lkey
        return rows if self.random.random() < 0.9 else np.zeros(3)

    def call(self) -> None:
        choice = self.random.randrange(25)
        pair = self.any_of(self.pairs)
        if choice < 6:
            pair.post([self.request() for _ in range(self.random.randrange(5))])
        elif choice < 8:
            pair.post(self.rows(), address_handle=self.any_of(self.handles, [None]))
        elif choice < 10:
            target = self.any_of(self.pairs, self.shared)
            target.post_receive([verbs.receive(self.sge()) for _ in range(3)])
        elif choice < 13:
            self.any_of(self.queues).poll(max=self.random.choice([1, 16, 0, -1]), check=False)
        elif choice == 13:
            pair.connect(self.any_of(self.pairs).address)
        elif choice == 14:
            state = self.random.choice(list(verbs.QpState))
            pair.modify(state, self.random.choice([None, self.any_of(self.pairs).address]))
        elif choice == 15:
            self.regions.append(
                self.any_of(self.domains).allocate(self.random.choice([0, 1, 4096]))
            )
        elif choice == 16:
            victim = self.regions.pop(self.random.randrange(len(self.regions)))
            if len(self.regions) < 3 or self.random.random() < 0.5:
                self.regions.append(victim)
            if self.random.random() < 0.3:
                victim.close()
        elif choice == 17:
            self.arrays = [*self.arrays[-3:], self.any_of(self.regions).array]
            self.arrays[-1][:8] = 5
        elif choice == 18:
            made = self.any_of(self.domains).queue_pair(
                self.any_of(self.queues),
                self.any_of(self.queues),
                transport=self.random.choice(["rc", "uc", "ud", "dc", "xx"]),
                send_entries=self.random.choice([0, 1, 16, 2**32 - 1]),
                max_inline=self.random.choice([0, 64, 2**31]),
                shared_receives=self.any_of(self.shared, [None]),
            )
            self.pairs = [*self.pairs[:6], *self.pairs[-8:], made]
        elif choice == 19:
            pair.close()
            fresh = self.domains[0].queue_pair(self.queues[0])
            self.pairs[self.pairs.index(pair)] = fresh
        elif choice == 20:
            packed = bytes(self.random.getrandbits(8) for _ in range(44))
            made = self.any_of(self.pairs).address
            if self.random.random() < 0.5:
                made = verbs.QpAddress.from_bytes(packed)
            self.handles = [*self.handles[-4:], self.any_of(self.domains).address_handle(made)]
        elif choice == 21:
            queue = self.any_of(self.domains).shared_receive_queue(self.number())
            self.shared = [*self.shared[-3:], queue]
        elif choice == 22:
            node = self.random.randrange(len(self.devices))
            self.domains[node].close()
            self.domains[node] = self.devices[node].protection_domain()
        elif choice == 23:
            fresh = self.any_of(self.devices).completion_queue(8)
            self.queues = [*self.queues[:2], *self.queues[2:][-3:], fresh]
        else:
            self.any_of(self.queues[1:], self.shared, self.handles).close()


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_random_wrong_calls_crash_nothing(fabric: str) -> None:
    made: rd.Cluster = (
        rd.Cluster.sim(nodes=2, profile="cx5", seed=1)
        if fabric == "sim"
        else rd.Cluster.local(nodes=2, mode="thread")
    )
    refused = 0
    with made as cluster:
        chaos = Chaos(cluster, seed=5)
        for _ in range(CALLS):
            try:
                chaos.call()
            except ERRORS:
                refused += 1
            except AttributeError:  # a call on None
                refused += 1
    assert CALLS * 0.1 < refused < CALLS * 0.95


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_what_a_queue_pair_uses_closes_after_it(fabric: str) -> None:
    made: rd.Cluster = (
        rd.Cluster.sim(nodes=2, profile="cx5", seed=1)
        if fabric == "sim"
        else rd.Cluster.local(nodes=2, mode="thread")
    )
    with made as cluster:
        device = cluster.devices[0]
        domain, queue = device.protection_domain(), device.completion_queue(16)
        shared = domain.shared_receive_queue(4)
        region = domain.allocate(64)
        pair = domain.queue_pair(queue, transport="ud", shared_receives=shared)
        pair.connect()
        handle = domain.address_handle(pair.address)
        domain.close()
        with pytest.raises(rd.Unavailable):
            domain.allocate(64)
        send = verbs.Request(verbs.Opcode.SEND, [region.sge(0, 8)], address_handle=handle)
        assert pair.post([send]) == 1
        assert len(queue.poll(timeout_s=1.0)) == 1
        for used in (queue, shared, handle):
            with pytest.raises(rd.InvalidArgument):
                used.close()
        pair.close()
        for used in (queue, shared, handle, pair, domain, region):
            used.close()
            used.close()
        with pytest.raises(rd.Unavailable):
            queue.poll()
        other = device.protection_domain().queue_pair(device.completion_queue(16), transport="ud")
        other.connect()
        with pytest.raises(rd.Unavailable):
            other.post([verbs.Request(verbs.Opcode.SEND, [], address_handle=handle)])


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_threads_may_misuse_one_cluster_until_it_is_closed(fabric: str) -> None:
    """A simulated cluster refuses the calls of all threads but this one, and none harms it."""
    made: rd.Cluster = (
        rd.Cluster.sim(nodes=2, profile="cx5", seed=1)
        if fabric == "sim"
        else rd.Cluster.local(nodes=2, mode="thread")
    )
    stop = threading.Event()
    calls = [0, 0, 0, 0]
    wrong: list[BaseException] = []
    together = Chaos(made, seed=3)
    chaos = [together, together, Chaos(made, seed=2), together]

    def misuse(index: int) -> None:
        calls[index] += 1
        try:
            chaos[index].call()
        except (*ERRORS, AttributeError, LookupError):
            pass  # another thread may change the lists of `together` between two lines
        except BaseException as error:
            wrong.append(error)
            raise

    def misuse_until_stopped(index: int) -> None:
        while not stop.is_set():
            misuse(index)

    threads = [threading.Thread(target=misuse_until_stopped, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        misuse(3)
    made.close()
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not wrong
    assert min(calls) > 10


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_interrupt_stops_a_run(fabric: str) -> None:
    """Ctrl-C ends a running workload with KeyboardInterrupt, cleanly."""
    make = (
        "rd.Cluster.sim(nodes=2, profile='cx5')"
        if fabric == "sim"
        else "rd.Cluster.local(nodes=2, mode='thread')"
    )
    program = f"""
import pyrdma as rd
with {make} as cluster:
    print("started", flush=True)
    try:
        cluster.run(rd.workload.VerbsLoad(op="write"), duration_s=1000.0)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "started\n"
    try:
        child.communicate(timeout=0.5)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert "interrupted" in out, err
    assert child.returncode == 0, err
