"""The low-level Python interface, on the simulated fabric and over shared memory."""

import gc
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyrdma as rd
from pyrdma import verbs
from tests.errors import raises

WAIT = 5.0


class End(NamedTuple):
    """One node's objects."""

    device: verbs.Device
    domain: verbs.ProtectionDomain
    region: verbs.MemoryRegion
    queue: verbs.CompletionQueue
    pair: verbs.QueuePair


@pytest.fixture(params=["sim", "shm"])
def cluster(request: pytest.FixtureRequest) -> Iterator[rd.Cluster]:
    if request.param == "sim":
        made: rd.Cluster = rd.Cluster.sim(nodes=2, profile="cx5", seed=1)
    else:
        made = rd.Cluster.local(nodes=2, mode="thread")
    with made:
        yield made


def end(device: verbs.Device, **options: Any) -> End:
    domain = device.protection_domain()
    queue = device.completion_queue(256)
    region = domain.allocate(4096, verbs.ALL_ACCESS)
    return End(device, domain, region, queue, domain.queue_pair(queue, **options))


def connected(cluster: rd.Cluster, **options: Any) -> tuple[End, End]:
    a, b = (end(device, **options) for device in cluster.devices)
    a.pair.connect(b.pair.address)
    b.pair.connect(a.pair.address)
    return a, b


def one(queue: verbs.CompletionQueue) -> Any:
    done = queue.poll(timeout_s=WAIT)
    assert len(done) == 1
    return done[0]


def test_write_and_read_move_bytes(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    a.region.array[:64] = np.arange(64)
    assert a.pair.post([verbs.write(a.region.sge(0, 64), b.region.remote, 128, wr_id=7)]) == 1
    done = one(a.queue)
    assert done["wr_id"] == 7
    assert done["status"] == verbs.Status.SUCCESS
    assert done["opcode"] == verbs.Opcode.WRITE
    assert done["qp_num"] == a.pair.qp_num
    a.pair.post([verbs.read(a.region.sge(1000, 64), b.region.remote, 128)])
    assert one(a.queue)["opcode"] == verbs.Opcode.READ
    assert (a.region.array[1000:1064] == np.arange(64)).all()
    assert (b.region.array[128:192] == np.arange(64)).all()


def test_atomics_return_the_value_before(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    words = b.region.array.view(np.uint64)
    words[2] = 40
    old = a.region.array.view(np.uint64)
    a.pair.post([verbs.fetch_add(a.region.sge(0, 8), b.region.remote, 16, 2)])
    one(a.queue)
    assert (old[0], words[2]) == (40, 42)
    a.pair.post([verbs.compare_swap(a.region.sge(8, 8), b.region.remote, 16, 42, 1)])
    one(a.queue)
    assert (old[1], words[2]) == (42, 1)


def test_send_and_receive_with_immediate(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    assert b.pair.post_receive([verbs.receive(b.region.sge(0, 100), wr_id=3)]) == 1
    a.region.array[:5] = list(b"hello")
    a.pair.post([verbs.send(a.region.sge(0, 5), immediate=99)])
    received = one(b.queue)
    assert (received["wr_id"], received["byte_count"], received["immediate"]) == (3, 5, 99)
    assert received["flags"] & verbs.HAS_IMMEDIATE
    assert bytes(b.region.array[:5]) == b"hello"
    assert len(a.queue.poll(timeout_s=WAIT)) == 1


def test_datagrams_begin_with_a_header(cluster: rd.Cluster) -> None:
    a, b = (end(device, transport="ud") for device in cluster.devices)
    a.pair.connect()
    b.pair.connect()
    handle = a.domain.address_handle(b.pair.address)
    b.pair.post_receive([verbs.receive(b.region.sge(0, 200))])
    a.region.array[:4] = [1, 2, 3, 4]
    a.pair.post([verbs.send(a.region.sge(0, 4), to=handle)])
    received = one(b.queue)
    assert received["byte_count"] == 4 + verbs.GRH_BYTES
    header = verbs.GRH_BYTES
    assert b.region.array[header : header + 4].tolist() == [1, 2, 3, 4]


def test_a_device_tells_the_rate_of_its_link(cluster: rd.Cluster) -> None:
    expected = rd.Profile.load("cx5").values()["link.rate_gbps"] if cluster.fabric == "sim" else 0
    assert cluster.devices[0].capabilities["link_gbps"] == expected


def test_a_receive_takes_datagrams_by_strides(cluster: rd.Cluster) -> None:
    most = cluster.devices[1].capabilities["max_receive_strides"]
    if most == 1:
        with raises(rd.Unavailable, "receive_strides", 2, 1):
            end(cluster.devices[1], transport="ud", receive_strides=2)
        return
    a = end(cluster.devices[0], transport="ud")
    b = end(cluster.devices[1], transport="ud", receive_strides=2)
    a.pair.connect()
    b.pair.connect()
    handle = a.domain.address_handle(b.pair.address)
    b.pair.post_receive([verbs.receive(b.region.sge(0, 200), wr_id=7)])
    for stride in (0, 1):
        a.region.array[:4] = stride + 1
        a.pair.post([verbs.send(a.region.sge(0, 4), to=handle)])
        received = one(b.queue)
        assert (received["wr_id"], received["stride"]) == (7, stride)
        begin = 100 * stride + verbs.GRH_BYTES
        assert b.region.array[begin : begin + 4].tolist() == [stride + 1] * 4
        one(a.queue)


def test_arrays_of_requests_post_in_one_call(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    a.region.array[:64] = np.arange(64)
    rows = verbs.requests(8)
    rows["wr_id"] = np.arange(8)
    rows["local_addr"] = a.region.sge(0, 8).addr + 8 * np.arange(8)
    rows["length"] = 8
    rows["lkey"] = a.region.lkey
    rows["remote_addr"] = b.region.remote.addr + 8 * np.arange(8)[::-1]
    rows["rkey"] = b.region.remote.rkey
    assert a.pair.post(rows) == 8
    seen: list[int] = []
    while len(seen) < 8:
        done = a.queue.poll(timeout_s=WAIT)
        assert len(done) > 0
        seen += done["wr_id"].tolist()
    assert seen == list(range(8))
    a.pair.post([verbs.read(a.region.sge(512, 8), b.region.remote)])
    one(a.queue)
    expected = np.arange(64).reshape(8, 8)[::-1].reshape(-1)
    assert (b.region.array[:64] == expected).all()


def test_full_send_queue_gives_a_short_count(cluster: rd.Cluster) -> None:
    a, b = connected(cluster, send_entries=16)
    many = [verbs.write(a.region.sge(0, 8), b.region.remote) for _ in range(200)]
    accepted = a.pair.post(many)
    assert 16 <= accepted < 200


def test_a_failed_request_raises_with_its_status_and_a_hint(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    wrong = verbs.RemoteRegion(b.region.remote.addr, 4096, b.region.remote.rkey ^ 1, 1)
    a.pair.post([verbs.write(a.region.sge(0, 8), wrong, wr_id=11)])
    with raises(rd.CompletionError, "rkey") as info:
        a.queue.poll(timeout_s=WAIT)
    assert info.value.wr_id == 11
    assert info.value.status == "remote access error"
    assert info.value.qp_num == a.pair.qp_num
    assert a.pair.state == verbs.QpState.ERROR
    a.pair.post([verbs.write(a.region.sge(0, 8), b.region.remote)])
    done = a.queue.poll(timeout_s=WAIT, check=False)
    assert done["status"].tolist() == [verbs.Status.FLUSHED]


def test_a_peer_that_python_has_destroyed_is_suspected(cluster: rd.Cluster) -> None:
    here, there = connected(cluster, timeout_us=10, retry_count=1)
    region = there.region
    del there  # no variable refers to its queue pair any more
    gc.collect()
    here.pair.post([verbs.write(here.region.sge(0, 8), region.remote, wr_id=5)])
    with raises(rd.CompletionError, "variable") as info:
        here.queue.poll(timeout_s=WAIT)
    assert (info.value.status, info.value.wr_id) == ("retry count exceeded", 5)


@pytest.mark.parametrize("right", ["REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC"])
def test_a_region_grants_peers_only_what_it_is_asked(cluster: rd.Cluster, right: str) -> None:
    a, b = connected(cluster)
    here = a.region.sge(0, 8)

    def request(region: verbs.MemoryRegion) -> verbs.Request:
        if right == "REMOTE_WRITE":
            return verbs.write(here, region.remote)
        if right == "REMOTE_READ":
            return verbs.read(here, region.remote)
        return verbs.fetch_add(here, region.remote, 0, 1)

    access = verbs.LOCAL_WRITE | getattr(verbs, right)
    granted, default = b.domain.allocate(64, access=access), b.domain.allocate(64)
    a.pair.post([request(granted)])
    one(a.queue)
    a.pair.post([request(default)])
    with raises(rd.CompletionError, "access=", "LOCAL_WRITE", right) as info:
        a.queue.poll(timeout_s=WAIT)
    assert info.value.status == "remote access error"


def test_poll_returns_nothing_after_its_timeout(cluster: rd.Cluster) -> None:
    a, _ = connected(cluster)
    begin = a.device.now_ns
    assert len(a.queue.poll()) == 0
    assert len(a.queue.poll(timeout_s=0.05)) == 0
    assert a.device.now_ns - begin >= 50_000_000


def test_sleep_lets_time_pass(cluster: rd.Cluster) -> None:
    device = cluster.devices[0]
    begin = device.now_ns
    device.sleep(0.01)
    assert 10_000_000 <= device.now_ns - begin < 5_000_000_000


def test_close_of_a_region_that_arrays_show(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    view = b.region.array[10:20]
    with raises(BufferError, 1):
        b.region.close()
    del view
    gc.collect()
    remote = b.region.remote
    b.region.close()
    with pytest.raises(rd.Unavailable):
        _ = b.region.array
    a.pair.post([verbs.write(a.region.sge(0, 8), remote)])
    with pytest.raises(rd.CompletionError) as info:
        a.queue.poll(timeout_s=WAIT)
    assert info.value.status == "remote access error"


def check_all_refuse(end: End) -> None:
    for use in (
        lambda: end.pair.post([]),
        lambda: end.queue.poll(),
        lambda: end.domain.allocate(64),
        lambda: end.device.now_ns,
        lambda: end.region.array,
        lambda: end.pair.address,
    ):
        with pytest.raises(rd.Unavailable):
            use()


def test_arrays_outlive_their_cluster(cluster: rd.Cluster) -> None:
    a, b = connected(cluster)
    view = a.region.array
    view[:] = 9
    cluster.close()
    assert int(view.sum()) == 9 * 4096
    view[:] = 1
    check_all_refuse(a)
    del a, b
    gc.collect()
    assert int(view.sum()) == 4096


def test_objects_keep_what_they_use(cluster: rd.Cluster) -> None:
    a, b = cluster.devices
    pair = a.protection_domain().queue_pair(a.completion_queue(16))
    peer = b.protection_domain().queue_pair(b.completion_queue(16))
    gc.collect()
    pair.connect(peer.address)
    peer.connect(pair.address)
    assert pair.state == verbs.QpState.READY_TO_SEND


def test_objects_of_two_nodes_do_not_mix(cluster: rd.Cluster) -> None:
    a, b = cluster.devices
    with raises(rd.InvalidArgument, 1):
        a.protection_domain().queue_pair(b.completion_queue(16))


@pytest.mark.parametrize("option", ["pkey_index", "service_level", "traffic_class"])
def test_only_real_devices_have_paths(cluster: rd.Cluster, option: str) -> None:
    a = end(cluster.devices[0])
    domain: Any = cluster.devices[0].protection_domain()
    domain.queue_pair(a.queue, **{option: 0})
    with raises(rd.InvalidArgument, option, 1, "verbs"):
        domain.queue_pair(a.queue, **{option: 1})
    if option != "pkey_index":
        with raises(rd.InvalidArgument, option, 1, "verbs"):
            domain.address_handle(a.pair.address, **{option: 1})


def test_addresses_travel_as_bytes(cluster: rd.Cluster) -> None:
    a, b = (end(device) for device in cluster.devices)
    for one_end, other in ((a, b), (b, a)):
        one_end.pair.connect(verbs.QpAddress.from_bytes(other.pair.address.to_bytes()))
    remote = verbs.RemoteRegion.from_bytes(b.region.remote.to_bytes())
    a.pair.post([verbs.write(a.region.sge(0, 8), remote)])
    one(a.queue)
    with raises(rd.InvalidArgument, "to_bytes"):
        verbs.QpAddress.from_bytes(b"short")


def test_killed_node_is_not_there(cluster: rd.Cluster) -> None:
    a, b = connected(cluster, timeout_us=1000)
    remote = b.region.remote
    native: Any = cluster
    native.kill(1)
    a.pair.post([verbs.write(a.region.sge(0, 8), remote)])
    done = a.queue.poll(timeout_s=WAIT, check=False)
    assert done["status"].tolist() == [verbs.Status.RETRY_EXCEEDED]


def test_threads_share_a_cluster() -> None:
    """Each thread is one node, in real time."""
    with rd.Cluster.local(nodes=2, mode="thread") as cluster:
        a, b = connected(cluster)
        b.pair.post_receive([verbs.receive(b.region.sge(40 * i, 40)) for i in range(100)])
        got: list[int] = []

        def serve() -> None:
            while len(got) < 100:
                got.extend(b.queue.poll(timeout_s=WAIT)["byte_count"].tolist())

        server = threading.Thread(target=serve)
        server.start()
        for i in range(100):
            a.pair.post([verbs.send(a.region.sge(0, i % 40 + 1))])
            one(a.queue)
        server.join(timeout=60)
        assert got == [i % 40 + 1 for i in range(100)]
