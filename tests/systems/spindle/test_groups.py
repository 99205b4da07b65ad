"""Groups and domains of scripts, in virtual time and over shared memory."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import pyrdma as rd
from pyrdma.systems.spindle import Domain, Group, Message, Sample, Subgroup, Topic
from tests.errors import raises, unnamed


def sim(nodes: int = 3) -> rd.Cluster:
    return rd.Cluster.sim(nodes=nodes, profile="spindle", seed=1)


def received(group: Group, node: int, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        more = group.receive(node=node, timeout_s=1.0)
        assert more, found
        found += [message.data for message in more]
    return found


def test_all_members_receive_the_same_sequence() -> None:
    with sim() as cluster:
        group = Group(cluster, preset="paper", window=4, max_message=64)
        for i in range(20):
            group.send(b"%d" % i, node=i % 3)
        found = [received(group, n, 20) for n in range(3)]
        assert sorted(found[0]) == sorted(b"%d" % i for i in range(20))
        assert found[0] == found[1] == found[2]
        counters = group.counters()
        sent = counters[counters.counter == "sent"]
        assert sent.value.tolist() == [7.0, 7.0, 6.0]
        sizes = group.batch_sizes()
        assert (sizes.messages * sizes.batches)[sizes.stage == "send"].sum() == 20


def test_the_table_shows_how_far_the_members_are() -> None:
    with sim() as cluster:
        group = Group(cluster, preset="batching", subgroups=[Subgroup(senders=[0, 1], window=4)])
        group.send([b"a", b"b"], node=0)
        group.send(b"c", node=1)
        assert received(group, 2, 3) == [b"a", b"c", b"b"]
        table = group.table(node=2)
        assert table.member.tolist() == [0, 1, 2]
        assert table.sent.tolist()[:2] == [2, 1]
        assert table.sent.isna().tolist() == [False, False, True]
        assert table.delivered.tolist()[2] == 3
        assert (table.received >= table.delivered).all()


def test_a_workload_gives_its_group_the_counters() -> None:
    with sim(4) as cluster:
        group = Group(cluster, preset="batching")
        result = cluster.run(rd.workload.Multicast(group, messages=150))
        assert result.params["preset"] == "batching"
        counters = group.counters()
        assert counters[counters.counter == "sent"].value.sum() == 600
        assert result.value("delivered_bandwidth") > 1e9


def test_members_join_leave_and_die() -> None:
    with sim(4) as cluster:
        group = Group(cluster, founders=[0, 1, 2], suspicion_timeout_s=0.02)
        group.send(b"first", node=0)
        group.join(3)
        group.send(b"second", node=3)
        assert [m.data for m in group.receive(node=3)] == [b"second"]
        group.leave(2)
        assert group.standing(2) == "left"
        with pytest.raises(rd.Unavailable) as refused:
            group.send(b"x", node=2)
        assert unnamed(refused.value, "2", "left") == []
        cluster.kill(1)
        group.send(b"third", node=0)
        while not (found := [m.data for m in group.receive(node=3, timeout_s=1e-3)]):
            pass
        assert found == [b"third"]
        views = group.events()
        assert views[views.node == 3].members.iloc[-1] == (0, 3)


def test_subgroups_overlap() -> None:
    with sim() as cluster:
        small = Subgroup(members=[0, 1], senders=[0], max_message=8)
        group = Group(cluster, subgroups=[Subgroup(), small])
        group.send(b"all", node=2)
        group.send(b"two", node=0, subgroup=1)
        assert [m.data for m in group.receive(node=1, subgroup=1)] == [b"two"]
        assert [m.data for m in group.receive(node=1)] == [b"all"]
        with pytest.raises(rd.InvalidArgument) as refused:
            group.send(b"x" * 9, node=0, subgroup=1)
        assert unnamed(refused.value, "9", "8", "max_message") == []
        with pytest.raises(rd.InvalidArgument) as refused:
            group.send(b"x", node=1, subgroup=1)
        assert unnamed(refused.value, "1", "subgroup 1") == []
        with pytest.raises(rd.InvalidArgument) as refused:
            group.receive(node=0, subgroup=2)
        assert unnamed(refused.value, "2", "0", "1") == []


def test_a_full_window_names_who_lags() -> None:
    with sim() as cluster:
        group = Group(cluster, preset="batching", window=2)  # no nulls: node 0 must send, too
        with pytest.raises(rd.Timeout) as late:
            group.send([b"x"] * 3, node=1, timeout_s=1e-3)
        assert unnamed(late.value, "2", "3", "null_sends") == []


def test_a_python_function_gets_batches_over_shared_memory() -> None:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
        group = Group(cluster)
        found: list[bytes] = []
        with group.subscribe(lambda batch: found.extend(m.data for m in batch), node=1):
            group.send([b"%d" % i for i in range(200)], node=0)
            deadline = time.monotonic() + 30
            while len(found) < 200 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert found == [b"%d" % i for i in range(200)]

        def fails(batch: list[Message]) -> None:
            raise KeyError(batch[0].data)

        subscription = group.subscribe(fails, node=1)
        group.send(b"bad", node=0)
        time.sleep(0.5)
        with pytest.raises(KeyError):
            subscription.close()


def test_threads_send_from_one_node() -> None:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
        group = Group(cluster, window=4)
        sent = [[b"%d %d" % (each, i) for i in range(300)] for each in range(3)]
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(group.send, messages, node=0) for messages in sent]:
                done.result()
        found: list[bytes] = []
        while more := group.receive(node=1, timeout_s=0.5):
            found += [m.data for m in more]
        assert len(found) == 900
        for messages in sent:
            assert [data for data in found if data in messages] == messages


def test_a_subscription_needs_real_time() -> None:
    with sim() as cluster, pytest.raises(rd.Unavailable) as refused:
        Group(cluster).subscribe(print, node=0)
    assert unnamed(refused.value, "receive") == []


@pytest.mark.parametrize("quality", ["unordered", "atomic", "volatile", "logged"])
def test_a_topic_has_its_quality(quality: str) -> None:
    with sim() as cluster:
        topic = Topic("t", publishers=[0], subscribers=[1, 2], quality=quality)  # type: ignore[arg-type]
        domain = Domain(cluster, [topic])
        domain.publish("t", [b"%d" % i for i in range(10)], node=0)
        for node in (1, 2):
            found: list[bytes] = []
            while len(found) < 10:
                found += [s.data for s in domain.take("t", node=node)]
            assert found == [b"%d" % i for i in range(10)]
            kept = domain.read("t", node=node, first=8)
            assert [s.number for s in kept] == ([8, 9] if quality in ("volatile", "logged") else [])


def test_each_topic_numbers_its_samples() -> None:
    with sim() as cluster:
        topics = [Topic(name, [0], [1, 2], quality="volatile") for name in ("a", "b")]
        domain = Domain(cluster, topics, founders=[0, 1])
        for name in "ab":
            domain.publish(name, [b"1", b"2"], node=0)
            assert [s.number for s in domain.take(name, node=1)] == [0, 1]
        domain.join(2)
        domain.publish("b", b"3", node=0)
        for node in (1, 2):
            assert [s.number for s in domain.take("b", node=node)] == [2]
            assert domain.read("b", node=node)[-1].number == 2


def test_a_late_subscriber_catches_up() -> None:
    with sim() as cluster:
        topic = Topic("t", publishers=[0], subscribers=[1, 2], quality="volatile", history=5)
        domain = Domain(cluster, [topic], founders=[0, 1])
        domain.publish("t", [b"%d" % i for i in range(10)], node=0)
        while len(domain.read("t", node=1, first=5)) < 5:
            domain.take("t", node=1)
        domain.join(2)
        assert [s.data for s in domain.read("t", node=2)] == [b"%d" % i for i in range(5, 10)]


@pytest.mark.parametrize("world", ["sim", "shm"])
def test_a_client_publishes_through_a_member(world: str) -> None:
    with sim(4) if world == "sim" else rd.Cluster.local(nodes=4, mode="thread") as cluster:
        topic = Topic("t", publishers=[0, 1], subscribers=[1, 2], max_sample=8)
        domain = Domain(cluster, [topic], preset="paper", clients=[3])
        domain.publish("t", [b"one", b"two"], node=3)
        domain.publish("t", b"three", node=0)
        for node in (1, 2):
            samples: list[Sample] = []
            while len(samples) < 3:
                samples += domain.take("t", node=node)
            assert [s.data for s in samples if s.data != b"three"] == [b"one", b"two"]
        with raises(rd.InvalidArgument, 9, 8, "max_sample"):
            domain.publish("t", bytes(9), node=3)
        with raises(rd.InvalidArgument, 3, "only publishes"):
            domain.join(3)
        with raises(rd.InvalidArgument, 3, "only publishes"):
            Domain(cluster, [Topic("t", [3], [1])], clients=[3])


def test_what_a_client_has_published_survives_its_relay() -> None:
    texts = [b"%d" % i for i in range(5)]
    for seed in range(1, 6):
        with rd.Cluster.sim(nodes=5, profile="spindle", seed=seed) as cluster:
            topic = Topic("t", publishers=[0, 1], subscribers=[2, 3])
            domain = Domain(cluster, [topic], clients=[4], suspicion_timeout_s=0.02)
            for text in texts:
                domain.publish("t", text, node=4)
            cluster.kill(0)
            found: list[bytes] = []
            while more := domain.take("t", node=2, timeout_s=0.2):
                found += [sample.data for sample in more]
            assert found == texts


def test_wrong_topics_are_refused() -> None:
    with sim() as cluster:
        topic = Topic("speed", publishers=[0], subscribers=[1], max_sample=4)
        domain = Domain(cluster, [topic])
        for call, values in (
            (lambda: domain.publish("sped", b"x", node=0), ("sped", "speed")),
            (lambda: domain.publish("speed", b"x", node=1), ("1", "publisher", "speed")),
            (lambda: domain.take("speed", node=2), ("2", "subscriber")),
            (lambda: domain.publish("speed", b"12345", node=0), ("5", "4", "max_sample")),
            (lambda: Domain(cluster, [Topic("x", [7], [1])]), ("7", "publishers")),
            (lambda: Domain(cluster, []), ("0", "256")),
        ):
            with pytest.raises(rd.InvalidArgument) as refused:
                call()
            assert unnamed(refused.value, *values) == []
