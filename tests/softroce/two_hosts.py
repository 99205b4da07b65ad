"""A program for two guests: a cluster over the wire between them, then a pulled wire."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import verbs
from pyrdma._native import native
from tests.softroce import driven

NUMBER = int(os.environ["PYRDMA_GUEST"])
SHARE = Path(os.environ["PYRDMA_SHARE"])
ADDRESSES = ("10.99.0.1", "10.99.0.2")
TIMEOUT_S = 120.0
OPS = ("read", "write", "send", "fetch_add", "compare_swap")

core: Any = native()


def say(text: str) -> None:
    print(f"guest {NUMBER}, {time.monotonic():.1f} s: {text}", flush=True)


def publish(name: str, value: object) -> None:
    fresh = SHARE / f"{name}.fresh"
    fresh.write_text(json.dumps(value))
    fresh.rename(SHARE / name)


def await_value(name: str) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (SHARE / name).exists():
        assert time.monotonic() < deadline, f"the other guest did not publish {name}"
        time.sleep(0.05)
    return json.loads((SHARE / name).read_text())


def one(queue: Any) -> Any:
    done = queue.poll(max=1, timeout_s=20.0, check=False)
    assert len(done) == 1, "no completion"
    return done[0]


def a_cluster_of_two_machines() -> None:
    """Run every operation of the load, with the set-up exchange at guest 0."""
    session = None
    if NUMBER == 0:
        session = core.ibverbs.Session(nodes=2, seed=1, address=ADDRESSES[0])
        publish("session", [session.name, session.token])
    name, token = await_value("session")
    node = core.ibverbs.Node(
        session=name, node=NUMBER, nodes=2, token=token, address=ADDRESSES[NUMBER]
    )
    assert ADDRESSES[NUMBER] in node.choice
    for run, op in enumerate(OPS, 1):
        parameters = {"op": op, "size": 8, "mode": "latency", "duration_ns": 300_000_000}
        columns = core.measure.run_workload(node, "verbs_load", {**parameters, "run": run})
        found = dict(zip(columns["metric"], columns["value"], strict=True))
        if NUMBER == 1:  # node 0 is the server
            assert found["rate"] > 0, found
            say(f"{op}: {found['rate']:.0f} a second")
    node.close()
    publish(f"left.{NUMBER}", True)
    await_value(f"left.{1 - NUMBER}")


def a_cluster_of_an_inventory() -> None:
    """Run on both machines through daemons; a node and a daemon are killed meanwhile."""
    if NUMBER == 0:
        driven.drive(ADDRESSES, SHARE, publish, await_value, say)
    else:
        driven.answer(ADDRESSES[1], SHARE, publish, await_value)


def a_connection_by_address() -> None:
    """Send one-sided, two-sided and atomic requests over a connection of librdmacm."""
    with rd.Cluster.local(nodes=1, fabric="verbs", mode="thread") as cluster:
        device = cluster.devices[0]
        domain = device.protection_domain()
        queue = device.completion_queue(64)
        region, pair = domain.allocate(4096, verbs.ALL_ACCESS), domain.queue_pair(queue)
        mine = region.remote.to_bytes()
        if NUMBER == 0:
            listener = core.ibverbs.Listener(ADDRESSES[0])
            publish("port", listener.port)
            connection = listener.accept(pair, mine, timeout_s=TIMEOUT_S)
            pair.post_receive([verbs.Receive([region.sge(1024, 64)], wr_id=9)])
            publish("ready", True)
            received = one(queue)
            assert received["wr_id"] == 9
            assert received["byte_count"] == 16
            assert (region.array[1024:1040] == region.array[:16]).all(), "sent what was written"
            publish("received", True)
        else:
            connection = core.ibverbs.connect(
                pair, ADDRESSES[0], await_value("port"), mine, timeout_s=TIMEOUT_S
            )
            await_value("ready")
            there = verbs.RemoteRegion.from_bytes(connection.private_data[: len(mine)])
            region.array[:16] = range(16)
            pair.post([verbs.write(region.sge(0, 16), there, 0)])
            assert one(queue)["status"] == verbs.Status.SUCCESS
            pair.post([verbs.read(region.sge(64, 16), there, 0)])
            assert one(queue)["status"] == verbs.Status.SUCCESS
            assert (region.array[64:80] == range(16)).all()
            pair.post([verbs.fetch_add(region.sge(128, 8), there, 512, 5)])
            pair.post([verbs.compare_swap(region.sge(136, 8), there, 512, 5, 9)])
            assert [one(queue)["status"] for _ in range(2)] == [verbs.Status.SUCCESS] * 2
            assert int(region.array[136:144].view("u8")[0]) == 5
            pair.post([verbs.send(region.sge(0, 16))])
            assert one(queue)["status"] == verbs.Status.SUCCESS
            await_value("received")
        say("connected by address, and served")
        a_process_that_is_killed(device, domain)
        a_wire_that_is_pulled(pair, queue, region, connection)


def a_process_that_is_killed(device: Any, domain: Any) -> None:
    """Guest 1 runs a process that answers and kills it with -9 during guest 0's writes."""
    if NUMBER == 1:
        victim = subprocess.Popen([sys.executable, "-m", __spec__.name, "victim"])
        await_value("served")
        victim.kill()
        victim.wait()
        publish("killed", True)
        await_value("seen")
        return
    queue = device.completion_queue(64)
    region, pair = domain.allocate(4096), domain.queue_pair(queue)
    publish("asker", pair.address.to_bytes().hex())
    answer = await_value("victim")
    pair.connect(verbs.QpAddress.from_bytes(bytes.fromhex(answer["address"])))
    there = verbs.RemoteRegion.from_bytes(bytes.fromhex(answer["region"]))
    pair.post([verbs.write(region.sge(0, 8), there, 0)])
    assert one(queue)["status"] == verbs.Status.SUCCESS
    publish("served", True)
    await_value("killed")
    start = time.monotonic()
    pair.post([verbs.write(region.sge(0, 8), there, 0, wr_id=n) for n in (1, 2)])
    first, second = one(queue), one(queue)
    assert first["status"] == verbs.Status.RETRY_EXCEEDED, first
    assert second["status"] == verbs.Status.FLUSHED, second
    took = time.monotonic() - start
    say(f"a killed process: retry exceeded after {took:.2f} s, then flushed")
    assert took < 10.0
    publish("seen", True)


def victim() -> None:
    with rd.Cluster.local(nodes=1, fabric="verbs", mode="thread") as cluster:
        domain = cluster.devices[0].protection_domain()
        queue = cluster.devices[0].completion_queue(64)
        region = domain.allocate(4096, verbs.LOCAL_WRITE | verbs.REMOTE_WRITE)
        pair = domain.queue_pair(queue)
        pair.connect(verbs.QpAddress.from_bytes(bytes.fromhex(await_value("asker"))))
        address, remote = pair.address.to_bytes().hex(), region.remote.to_bytes().hex()
        publish("victim", {"address": address, "region": remote})
        time.sleep(TIMEOUT_S)


def a_wire_that_is_pulled(pair: Any, queue: Any, region: Any, connection: Any) -> None:
    """Guest 1's interface goes down during guest 0's requests, which end within their time."""
    assert not connection.is_over
    there = verbs.RemoteRegion.from_bytes(connection.private_data[: len(region.remote.to_bytes())])
    if NUMBER == 1:
        await_value("pull")
        set_wire("down")
        publish("pulled", True)
        await_value("noticed")
        return
    pair.post([verbs.write(region.sge(0, 8), there, 0)])
    assert one(queue)["status"] == verbs.Status.SUCCESS
    publish("pull", True)
    await_value("pulled")
    start = time.monotonic()
    pair.post([verbs.write(region.sge(0, 8), there, 0, wr_id=n) for n in (1, 2)])
    first, second = one(queue), one(queue)
    assert first["status"] == verbs.Status.RETRY_EXCEEDED, first
    assert second["status"] == verbs.Status.FLUSHED, second
    took = time.monotonic() - start
    say(f"a pulled wire: retry exceeded after {took:.2f} s, then flushed")
    assert took < 10.0
    publish("noticed", True)


def set_wire(state: str) -> None:
    subprocess.run(["ip", "link", "set", "eth0", state], check=True)


def a_cluster_whose_wire_is_pulled() -> None:
    """Guest 1's interface goes down during a run over the wire; both ends report it in time."""
    session = None
    if NUMBER == 0:
        session = core.ibverbs.Session(nodes=2, seed=1, address=ADDRESSES[0])
        await_value("wire is back")
        publish("second session", [session.name, session.token])
    else:
        set_wire("up")
        time.sleep(1.0)
        publish("wire is back", True)
    name, token = await_value("second session")
    node = core.ibverbs.Node(
        session=name, node=NUMBER, nodes=2, token=token, address=ADDRESSES[NUMBER]
    )
    publish(f"attached.{NUMBER}", True)
    await_value(f"attached.{1 - NUMBER}")
    if NUMBER == 1:
        threading.Timer(2.0, set_wire, ("down",)).start()
    start = time.monotonic()
    parameters = {"op": "write", "size": 8, "mode": "latency", "duration_ns": 60_000_000_000}
    # Node 0 names the lost node; node 1 names its own port, which went down.
    named = [r"\b1\b"] if NUMBER == 0 else [r"\brxe0\b", r"\b1\b"]
    with pytest.raises(rd.Error) as caught:
        core.measure.run_workload(node, "verbs_load", {**parameters, "run": 1})
    assert all(re.search(value, str(caught.value)) for value in named), str(caught.value)
    took = time.monotonic() - start
    say(f"a run whose wire was pulled ended after {took:.1f} s: {caught.value}")
    assert took < 25.0
    start = time.monotonic()
    if session is not None:
        while session.dead_nodes != [1]:
            assert time.monotonic() - start < 20.0, "the controller did not notice the lost node 1"
            time.sleep(0.1)
    node.close()
    took = time.monotonic() - start
    say(f"left after {took:.1f} s")
    assert took < 20.0
    publish(f"gone.{NUMBER}", True)
    await_value(f"gone.{1 - NUMBER}")


if __name__ == "__main__":
    if sys.argv[1:] == ["victim"]:
        victim()
    else:
        a_cluster_of_two_machines()
        a_cluster_of_an_inventory()
        a_connection_by_address()
        a_cluster_whose_wire_is_pulled()
        say("all good")
