"""Services of scripts, in virtual time and over shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

import pyrdma as rd
from pyrdma.systems.krcore import App, Service
from tests.errors import raises

NODES = 3


def sim() -> rd.Cluster:
    return rd.Cluster.sim(nodes=NODES, profile="krcore", seed=1)


def threads() -> rd.Cluster:
    return rd.Cluster.local(nodes=NODES, fabric="shm", mode="thread")


WORLDS = {"sim": sim, "shm": threads}


@pytest.fixture(params=WORLDS)
def cluster(request: pytest.FixtureRequest) -> Iterator[rd.Cluster]:
    with WORLDS[request.param]() as made:
        yield made


def small(cluster: rd.Cluster, **options: object) -> Service:
    """Return a service with little memory."""
    return Service(cluster, **{"arena_bytes": 8 << 20, **options})  # type: ignore[arg-type]


def test_a_connect_takes_microseconds_and_less_when_cached() -> None:
    with sim() as cluster:
        service = small(cluster)
        app = service.app(node=1)
        first = app.vqp().connect(node=2)
        second = app.vqp().connect(node=2)
        assert 0 < second < first < 10_000
        service.clear_caches(node=1)
        assert app.vqp().connect(node=2) > second
        counters = service.counters(node=1)
        assert (counters["connects"], counters["cache_hits"]) == (3, 1)
        assert counters["meta_reads"] == 4, "two for each miss"


def test_messages_go_both_ways(cluster: rd.Cluster) -> None:
    service = small(cluster)
    inbox = service.app(node=2).vqp(bind=7)
    senders = [service.app(node=1).vqp() for _ in range(2)]
    for vqp in senders:
        vqp.connect(node=2, port=7)
    for number, vqp in enumerate(senders):
        for text in (b"", b"hello"):
            vqp.send(text + b"%d" % number)
    got: list[tuple[rd.krcore.Vqp, bytes]] = []
    while len(got) < 4:
        popped = inbox.pop_msgs(timeout_s=5)
        assert popped
        got += popped
    assert sorted(message for _, message in got) == [b"0", b"1", b"hello0", b"hello1"]
    for reply, message in got:
        reply.send(message[::-1])
    for number, vqp in enumerate(senders):
        answers: list[bytes] = []
        while len(answers) < 2:
            popped = vqp.pop_msgs(timeout_s=5)
            assert popped
            assert all(peer is vqp for peer, _ in popped)
            answers += [message for _, message in popped]
        assert answers == [b"%d" % number, b"%dolleh" % number], "in the order of the sends"
    assert inbox.pop_msgs(timeout_s=0.01) == []


def test_one_sided_requests_reach_a_region(cluster: rd.Cluster) -> None:
    service = small(cluster)
    region = service.app(node=2).reg_mr(4096)
    assert (region.node, region.size) == (2, 4096)
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2)
    assert vqp.read(region, 16) == bytes(16)
    vqp.write(region, b"far memory", offset=100)
    assert region.load(10, offset=100) == b"far memory"
    region.store(b"near", offset=4092)
    assert vqp.read(region, 4, offset=4092) == b"near"
    misses = service.counters(node=1)["region_misses"]
    assert misses == 1, "a checked region is cached"


def test_atomics_return_what_was_there(cluster: rd.Cluster) -> None:
    service = small(cluster)
    region = service.app(node=2).reg_mr(64)
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2)
    assert vqp.fetch_add(region, 5) == 0
    assert vqp.fetch_add(region, 2**64 - 1) == 5
    assert vqp.compare_swap(region, 4, 77) == 4
    assert vqp.compare_swap(region, 4, 99) == 77
    assert int.from_bytes(region.load(8), "little") == 77
    assert vqp.fetch_add(region, 1, offset=8) == 0


def test_rights_of_a_region_are_kept(cluster: rd.Cluster) -> None:
    service = small(cluster)
    readable = service.app(node=2).reg_mr(64, access="read")
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2)
    assert vqp.read(readable, 8) == bytes(8)
    with raises(rd.InvalidArgument, "access", "region"):
        vqp.write(readable, b"x")
    assert readable.load(1) == b"\0"


def test_a_region_that_ended_is_refused_after_its_lease() -> None:
    with sim() as cluster:
        service = small(cluster, lease_s=0.01)
        region = service.app(node=2).reg_mr(4096)
        app = service.app(node=1)
        vqp, idle = app.vqp(), app.vqp(bind=9)
        vqp.connect(node=2)
        vqp.write(region, b"x")
        region.deregister()
        assert idle.pop_msgs(timeout_s=0.05) == [], "the lease ends meanwhile"
        with raises(rd.InvalidArgument, "region", "exist"):
            vqp.read(region, 1)


def test_wrong_connects_name_the_remedy(cluster: rd.Cluster) -> None:
    service = small(cluster)
    app = service.app(node=1)
    app.vqp(bind=7)
    with raises(rd.InvalidArgument, 7, "bound", "another"):
        app.vqp(bind=7)
    vqp = app.vqp()
    with raises(rd.InvalidArgument, "connect()"):
        vqp.send(b"x")
    with raises(rd.InvalidArgument, "node", NODES, 0, NODES - 1):
        vqp.connect(node=NODES)
    vqp.connect(node=2)
    with raises(rd.InvalidArgument, "connected", "another", 2):
        vqp.connect(node=2)


def test_a_message_to_an_unbound_port_fails(cluster: rd.Cluster) -> None:
    service = small(cluster)
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2, port=8)
    with raises(rd.InvalidArgument, "port 8", "node 2", "bind=8"):
        for _ in range(20):
            vqp.send(b"x")
            assert vqp.pop_msgs(timeout_s=0.01) == []
    assert service.counters(node=2)["refused_messages"] >= 1
    again = service.app(node=1).vqp()
    again.connect(node=2, port=8)  # a failed queue pair harms no other


def test_wrong_arguments_are_named() -> None:
    with sim() as cluster:
        with raises(rd.InvalidArgument, "meta_servers", 3, 0, 2):
            Service(cluster, meta_servers=[3])
        service = small(cluster)
        app = service.app(node=1, message_bytes=64)
        vqp = app.vqp()
        vqp.connect(node=2)
        region = service.app(node=2).reg_mr(16)
        for call, named in (
            (lambda: service.app(node=3), ("node", 3, 0, 2)),
            (lambda: vqp.read(region, 17), ("17", "16")),
            (lambda: vqp.write(region, b"x", offset=16), ("offset", 16)),
            (lambda: vqp.fetch_add(region, 1, offset=4), ("offset", 4, 8)),
            (lambda: vqp.send(bytes(65)), (65, 64, "message_bytes")),
            (lambda: region.load(1, offset=16), ("offset", 16)),
        ):
            with raises(rd.InvalidArgument, *named):
                call()


def test_close_frees_what_an_application_has() -> None:
    with sim() as cluster:
        service = small(cluster, arena_bytes=1 << 20)

        def fill(app: App) -> None:
            for _ in range(3):
                app.reg_mr(256 << 10)

        first = service.app(node=1)
        fill(first)
        with raises(rd.Exhausted, 1 << 20, "arena_bytes"):
            first.reg_mr(512 << 10)
        vqp = first.vqp(bind=7)
        vqp.close()
        first.vqp(bind=7)  # the port is free again
        first.close()
        assert service.counters(node=1)["ending_regions"] == 3
        waiting = service.app(node=1, message_bytes=64).vqp(bind=7)
        assert waiting.pop_msgs(timeout_s=3.0) == [], "the leases of peers end meanwhile"
        fill(service.app(node=1))


def test_closing_a_queue_pair_frees_its_receives() -> None:
    with sim() as cluster:
        app = small(cluster, arena_bytes=1 << 20).app(node=1, message_bytes=16 << 10)
        for _ in range(8):  # of the 3 that have room at a time
            vqp = app.vqp(bind=7)
            assert vqp.pop_msgs(timeout_s=3.0) == [], "the leases of peers end meanwhile"
            vqp.close()


@pytest.mark.parametrize("policy", ["never", "sampled"])
def test_a_frequent_peer_gets_a_reliable_connection(policy: Literal["never", "sampled"]) -> None:
    with sim() as cluster:
        service = small(
            cluster, cores=1, rc_policy=policy, sample_interval_s=0.001, frequent_requests=5
        )
        region = service.app(node=2).reg_mr(64)
        app = service.app(node=1)
        vqp, idle = app.vqp(), app.vqp(bind=9)
        assert vqp.connect(node=2) < 10_000
        assert not vqp.is_reliable
        for number in range(300):
            vqp.write(region, number.to_bytes(8, "little"))
        assert idle.pop_msgs(timeout_s=0.1) == []
        for number in range(300):
            vqp.write(region, number.to_bytes(8, "little"))
        counters = service.counters(node=1)
        made = policy == "sampled"
        assert (vqp.is_reliable, counters["rc_made"], counters["transfers"]) == (made, made, made)
        assert vqp.read(region, 8) == (299).to_bytes(8, "little")


def test_processes_have_no_service_of_a_script() -> None:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        service = Service(cluster)
        with raises(rd.Unavailable, "workloads", "thread"):
            service.app(node=0)


def test_an_application_stays_within_its_quotas(cluster: rd.Cluster) -> None:
    service = small(cluster, app_queues=2, app_bytes=1 << 20)
    app, other = service.app(node=1), service.app(node=1)
    first, _ = app.vqp(), app.vqp()
    with raises(rd.Exhausted, 2, "app_queues"):
        app.vqp()
    other.vqp()
    first.close()
    app.vqp()
    region = app.reg_mr(1 << 20)
    with raises(rd.Exhausted, 64, 1 << 20, "app_bytes"):
        app.reg_mr(64)
    region.deregister()
    app.reg_mr(64)


def test_a_service_answers_clients_that_come_and_go(cluster: rd.Cluster) -> None:
    service = small(cluster, app_queues=4)
    inbox = service.app(node=2, message_bytes=64).vqp(bind=7)
    clients = service.app(node=1, message_bytes=64)
    for _ in range(12):
        client = clients.vqp()
        client.connect(node=2, port=7)
        for text in (b"one", b"two"):
            client.send(text)
            [(reply, data)] = inbox.pop_msgs()
            assert data == text
            reply.send(data)
            assert [data for _, data in client.pop_msgs()] == [text]
            reply.close()  # the next message brings another one
        client.close()


def test_a_message_that_nothing_can_answer_says_why(cluster: rd.Cluster) -> None:
    service = small(cluster, app_queues=1)
    inbox = service.app(node=2, message_bytes=64).vqp(bind=7)
    client = service.app(node=1, message_bytes=64).vqp()
    client.connect(node=2, port=7)
    client.send(b"one")
    [(reply, data)] = inbox.pop_msgs()
    assert data == b"one"
    with raises(rd.Exhausted, "nothing answers this message", "app_queues"):
        reply.send(b"answer")
