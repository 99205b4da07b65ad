"""Timelines of simulated runs: the format, what they show, their bounds, the commands."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import fuzz, timeline, workload
from pyrdma.errors import InvalidArgument
from tests.errors import raises
from tests.harness.support import pyrdma

WRITES = workload.VerbsLoad(op="write", size=64, depth=4, servers=1)
SENDS = workload.VerbsLoad(op="send", size=64, depth=2, servers=1)

Event = dict[str, Any]


def record(
    path: Path,
    load: Any = WRITES,
    *,
    nodes: int = 2,
    faults: Mapping[str, float] | None = None,
    overrides: Mapping[str, float] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], rd.Cluster]:
    """Record a run; return the checked document, and the cluster for its counters."""
    cluster = rd.Cluster.sim(nodes, "cx5", seed=3, faults=faults, overrides=overrides)
    with cluster.timeline(path, **options):
        cluster.run(load, duration_s=50e-6)
    return read(path), cluster


def read(path: Path) -> dict[str, Any]:
    """Return the document of a file after a check of the rules of the format."""
    content = path.read_bytes()
    document: dict[str, Any] = json.loads(
        gzip.decompress(content) if path.suffix == ".gz" else content
    )
    events: list[Event] = document["traceEvents"]
    assert {e["ph"] for e in events} <= set("MXistf")
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert event["ts"] >= 0
        assert event["name"]
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] != "i" or event["s"] in ("t", "g")
    names = {(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"}
    places = {(e["pid"], e["tid"]) for e in events if e["ph"] in ("X", "s", "t", "f")}
    assert len({thread for _, thread in places}) == len(places), "a thread of two processes"
    for process, thread in places:
        assert ("process_name", process, 0) in names
        assert ("thread_name", process, thread) in names
    check_nesting(events)
    check_flows(events)
    return document


def nanos(event: Event) -> tuple[int, int]:
    """Return begin and end in whole nanoseconds, as viewers round both numbers of a slice."""
    begin = round(event["ts"] * 1e3)
    return begin, begin + round(event["dur"] * 1e3)


def check_nesting(events: list[Event]) -> None:
    rows = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["tid"]].append(nanos(event))
    for slices in rows.values():
        outer: list[int] = []
        for begin, end in slices:  # in the order of the file
            while outer and outer[-1] <= begin:
                outer.pop()
            assert not outer or end <= outer[-1], "two slices of a row overlap"
            outer.append(end)


def check_flows(events: list[Event]) -> None:
    slices = {(e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for steps in flows(events):
        assert steps[0]["ph"] == "s"
        assert steps[-1]["ph"] == "f"
        assert {step["ph"] for step in steps[1:-1]} <= {"t"}
        times = [step["ts"] for step in steps]
        assert times == sorted(times)
        assert all((step["tid"], step["ts"]) in slices for step in steps)


def flows(events: list[Event]) -> list[list[Event]]:
    """Return the steps of each flow."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] in ("s", "t", "f"):
            found[event["id"]].append(event)
    return list(found.values())


def rows_of(document: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of rows: of the process and of the thread, without the lane."""
    events = document["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    return {
        e["tid"]: f"{processes[e['pid']]}: {e['args']['name'].partition(' (')[0]}"
        for e in events
        if e["name"] == "thread_name"
    }


def marks(document: Mapping[str, Any]) -> Counter[str]:
    return Counter(e["name"] for e in document["traceEvents"] if e["ph"] == "i")


def test_a_request_flows_from_its_post_to_its_poll(tmp_path: Path) -> None:
    document, cluster = record(tmp_path / "t.json.gz")
    rows = rows_of(document)
    ways = Counter(tuple(rows[e["tid"]] for e in s) for s in flows(document["traceEvents"]))
    way, count = ways.most_common(1)[0]
    client, server = (f"node {way[0][-1]}", f"node {1 - int(way[0][-1])}")
    assert way == (
        f"{client}: {way[0].partition(': ')[2]}",
        f"{client}: NIC requester",
        f"{client}: NIC link",
        f"network: to {server}",
        f"{server}: NIC receiver",
        f"{server}: NIC responder",
        f"{server}: NIC link",
        f"network: to {client}",
        f"{client}: NIC receiver",
        f"{client}: NIC completer",
        way[0],
    )
    requests = sum(cluster.counters(node)["requests"] for node in range(2))  # type: ignore[attr-defined]
    assert count > 0.8 * requests
    names = Counter(e["name"] for e in document["traceEvents"] if e["ph"] == "X")
    assert names["post write"] == requests
    assert names["runs"] > 10


def test_a_send_flows_to_the_poll_of_its_receive(tmp_path: Path) -> None:
    document, _ = record(tmp_path / "t.json", SENDS)
    names = {(e["tid"], e["ts"]): e["name"] for e in document["traceEvents"] if e["ph"] == "X"}
    ways = [[names[e["tid"], e["ts"]] for e in steps] for steps in flows(document["traceEvents"])]
    assert sum("poll receive" in way for way in ways) > 0.8 * len(ways) > 5


def test_a_message_between_racks_passes_the_links(tmp_path: Path) -> None:
    racks = {"topology.two_tier": 1, "topology.nodes_per_tor": 1, "topology.uplinks_per_tor": 1}
    document, _ = record(tmp_path / "t.json", overrides=racks)
    rows = rows_of(document)
    links = {name for name in rows.values() if name.startswith("network: rack link")}
    assert len(links) == 4  # up and down, both ways


def test_recording_changes_nothing_and_equal_runs_give_equal_files(tmp_path: Path) -> None:
    faults = {"loss.rate": 0.02, "preemption.rate": 0.02, "crash.rate": 0.0}

    def fingerprint(path: Path | None) -> int:
        with rd.Cluster.sim(3, "cx5", seed=5, faults=faults, variance=True) as cluster:
            if path is not None:
                cluster.timeline(path)
            cluster.run(WRITES, duration_s=50e-6)
            return cluster.fingerprint

    paths = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    assert {fingerprint(path) for path in (None, *paths)} == {fingerprint(None)}
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert read(paths[0])["otherData"]["events"] > 1000


def test_losses_are_marks(tmp_path: Path) -> None:
    document, cluster = record(tmp_path / "t.json", faults={"loss.rate": 0.03})
    found = marks(document)
    assert cluster.fault_counters()["loss"][0] == found["loss"] > 2
    assert found["lost"] == found["loss"]
    assert found["sends again"] > 0


def test_faults_that_last_are_slices(tmp_path: Path) -> None:
    faults = {"pause.rate": 100, "pause.min_ns": 10_000, "pause.max_ns": 20_000}
    document, cluster = record(tmp_path / "t.json", faults=faults)
    slices = [e for e in document["traceEvents"] if e["name"] == "pause"]
    assert len(slices) == cluster.fault_counters()["pause"][0] > 10
    assert all(10 <= e["dur"] <= 20 for e in slices)
    rows = rows_of(document)
    assert {rows[e["tid"]] for e in slices} == {"node 0: faults", "node 1: faults"}


def test_a_death_is_a_mark_of_the_node(tmp_path: Path) -> None:
    with rd.Cluster.sim(2, "cx5") as cluster, cluster.timeline(tmp_path / "t.json"):
        cluster.kill(1)
    document = read(tmp_path / "t.json")
    (mark,) = (e for e in document["traceEvents"] if e["ph"] == "i")
    assert mark["name"] == "killed"
    assert rows_of(document)[mark["tid"]] == "node 1: faults"


def test_the_limit_keeps_the_first_events_and_says_so(tmp_path: Path) -> None:
    whole, _ = record(tmp_path / "whole.json")
    with rd.Cluster.sim(2, "cx5", seed=3) as cluster:
        recorded = cluster.timeline(tmp_path / "part.json", limit=500)
        cluster.run(WRITES, duration_s=50e-6)
    part = read(tmp_path / "part.json")
    note = part["otherData"]
    assert 500 <= note["events"] <= 510  # and the slices that the threads were in
    assert note["events"] == recorded.events
    assert note["left_out"] == recorded.left_out
    total = whole["otherData"]["events"]
    assert abs(note["events"] + note["left_out"] - total) < 10
    assert "limit" in note["note"]
    assert f"{note['left_out']} more" in f"{recorded}"
    (mark,) = (e for e in part["traceEvents"] if e.get("s") == "g")
    assert mark["ts"] == note["complete_until_us"]
    # The threads' own slices are there up to the mark.
    ends = [e["ts"] + e["dur"] for e in part["traceEvents"] if e["name"] == "runs"]
    assert max(ends) == pytest.approx(mark["ts"], abs=2)


@pytest.mark.parametrize("limit", [*range(10, 200, 21), *range(200, 2000, 217)])
def test_what_begins_before_the_mark_of_the_limit_is_all_there(limit: int, tmp_path: Path) -> None:
    def recorded(name: str, **given: Any) -> dict[str, Any]:
        cluster = rd.Cluster.sim(3, "cx5", seed=3, faults={"preemption.rate": 0.05})
        with cluster, cluster.timeline(tmp_path / name, **given):
            cluster.run(rd.workload.VerbsLoad(threads=2, depth=4), duration_s=20e-6)
        return read(tmp_path / name)  # which checks that slices nest

    def before(document: dict[str, Any], time: float) -> Counter[tuple[object, ...]]:
        rows = rows_of(document)
        found = (e for e in document["traceEvents"] if e["ph"] in ("X", "i") and e["ts"] < time)
        named = (e for e in found if e["name"] != "runs")
        return Counter((rows.get(e["tid"]), e["name"], e["ts"]) for e in named)

    part = recorded("part.json", limit=limit)
    until = part["otherData"]["complete_until_us"]
    whole = recorded("whole.json")
    assert before(whole, until) == before(part, until)
    if limit > 100:  # the first events are of the beginning
        assert before(part, until).total() > 0.2 * limit, "the mark is not far too early"


def test_a_fault_that_is_healed_is_as_long_as_it_lasted(tmp_path: Path) -> None:
    faults = {"pause.rate": 100, "pause.min_ns": 1e6, "pause.max_ns": 2e6, "heal_at_ns": 20_000}
    document, _ = record(tmp_path / "t.json", faults=faults)
    slices = [e for e in document["traceEvents"] if e["name"] == "pause" and e["ph"] == "X"]
    assert len(slices) > 0
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(20, abs=0.001)
    later, _ = record(tmp_path / "later.json", faults=faults, window="30us-")
    assert not [e for e in later["traceEvents"] if e["name"] == "pause"]


def test_a_window_cuts_by_virtual_time(tmp_path: Path) -> None:
    whole, _ = record(tmp_path / "whole.json")
    first = min(e["ts"] for e in whole["traceEvents"] if e["name"] == "post write")
    window = f"{first + 5:.3f}us-{first + 10:.3f}us"
    part, _ = record(tmp_path / "part.json", window=window)
    times = [e["ts"] for e in part["traceEvents"] if e["ph"] != "M"]
    ends = [e["ts"] + e["dur"] for e in part["traceEvents"] if e["ph"] == "X"]
    assert first + 4.999 <= min(times)
    assert max(ends) <= first + 10.001
    assert 50 < len(times) < len(whole["traceEvents"]) / 3
    assert part["otherData"]["left_out"] == 0


@pytest.mark.parametrize(
    ("window", "range_ps"),
    [
        ("10us-20us", (10**7, 2 * 10**7)),
        ("10-20us", (10**7, 2 * 10**7)),
        (" 1.5ns - 2ms ", (1500, 2 * 10**9)),
        ("1e-3s-", (10**9, 2**63 - 1)),
        ("-7us", (0, 7 * 10**6)),
        ("", (0, 2**63 - 1)),
    ],
)
def test_windows(window: str, range_ps: tuple[int, int]) -> None:
    assert timeline.Options("t.json", window).range_ps() == (*range_ps, timeline.LIMIT)


@pytest.mark.parametrize(
    "window", ["10", "-", "x-y", "10us", "10-20", "1min-2min", "20us-10us", "1us-1us", "1us-1e9s"]
)
def test_a_wrong_window_is_refused(window: str, tmp_path: Path) -> None:
    with rd.Cluster.sim(2, "cx5") as cluster:
        with raises(InvalidArgument, repr(window)):
            cluster.timeline(tmp_path / "t.json", window)
        assert not list(tmp_path.iterdir())


def test_one_timeline_at_a_time(tmp_path: Path) -> None:
    with rd.Cluster.sim(2, "cx5") as cluster:
        first = cluster.timeline(tmp_path / "a.json")
        with raises(InvalidArgument, "timeline"):
            cluster.timeline(tmp_path / "b.json")
        assert not (tmp_path / "b.json").exists()
        first.close()
        first.close()
        with raises(rd.InvalidArgument, tmp_path):
            cluster.timeline(tmp_path)
        with raises(rd.Error, "no/t.json"):
            cluster.timeline(tmp_path / "no" / "t.json")
        cluster.timeline(tmp_path / "b.json")
    read(tmp_path / "a.json")
    read(tmp_path / "b.json")


@pytest.mark.parametrize("system", [each["name"] for each in fuzz.systems()])
def test_every_system_has_a_trace_and_a_timeline_with_faults(system: str, tmp_path: Path) -> None:
    kinds = {"duplicate.rate": 0.2}  # which every system can have
    options = fuzz.Options(system, nodes=3, operations=60, faults=kinds)
    recorded = timeline.Options(tmp_path / "t.json")
    found = fuzz.run(options, 2, trace=True)
    if any(" -> " in line for line in found["trace"]):  # a model of messages, without a fabric
        with raises(InvalidArgument, f"{system} has none", "take the trace"):
            fuzz.run(options, 2, timeline=recorded)
        assert not list(tmp_path.iterdir())
        return
    found = fuzz.run(options, 2, trace=True, timeline=recorded)
    faults = sum("  fault  duplicate" in line for line in found["trace"])
    assert faults == found["fired"]["duplicate"] > 0
    assert sum("  sends  " in line for line in found["trace"]) > 50
    document = read(tmp_path / "t.json")
    assert document["otherData"]["left_out"] == found["timeline"].left_out
    if not found["timeline"].left_out:
        assert marks(document)["duplicate"] == faults
    assert flows(document["traceEvents"])
    assert found["fingerprint"] == fuzz.run(options, 2)["fingerprint"]


def test_run_writes_the_timeline_of_its_first_point(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    words = ["fabric/latency", "--timeline", str(path), "--timeline-limit", "1000"]
    ended = pyrdma("run", *words, "--out", str(tmp_path / "results"))
    assert ended.returncode == 0, ended.stderr
    assert "1 points measured" in ended.stdout
    (line,) = (each for each in ended.stdout.splitlines() if "timeline of the first of" in each)
    assert str(path) in line
    assert "left out" in line
    assert flows(read(path)["traceEvents"])


def test_run_in_python_writes_the_same_timeline(tmp_path: Path) -> None:
    paths = [tmp_path / "command.json", tmp_path / "python.json"]
    point: dict[str, Any] = {"size": 64, "op": "read"}
    table = rd.run(
        "fabric/latency",
        set=point,
        out=tmp_path / "results",
        timeline=paths[1],
        timeline_window="5ms-",
        timeline_limit=1000,
    )
    assert len(table["seed"].unique()) == 1
    (line,) = table.timelines
    assert f"{paths[1]}: 100" in line
    assert "left out" in line
    words = [word for key, value in point.items() for word in ("--set", f"{key}={value}")]
    words += ["--timeline", str(paths[0]), "--timeline-window", "5ms-", "--timeline-limit", "1000"]
    ended = pyrdma("run", "fabric/latency", *words, "--out", str(tmp_path / "results"))
    assert ended.returncode == 0, ended.stderr
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeline_window": "1us-2us"}, "timeline="),
        ({"timeline": "t.json", "timeline_window": "2us-1us"}, "'2us-1us'"),
        ({"timeline": "t.json", "timeline_limit": 0}, "timeline_limit"),
        ({"timeline": "t.json", "fabric": "shm"}, "'shm'"),
        ({"timeline": "t.json", "executor": "dask"}, "executor"),
    ],
)
def test_wrong_options_of_run_in_python_are_refused(
    options: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with raises(InvalidArgument, named):
        rd.run("fabric/latency", **options)
    assert not list(tmp_path.rglob("t.json"))


def test_replay_writes_the_same_timeline_again(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for path in paths:
        words = ["fabric", "--seed", "3", "--operations", "60", "--timeline", str(path)]
        ended = pyrdma("replay", *words, "--timeline-window", "-30ms")
        assert ended.returncode == 0, ended.stderr
        assert f"timeline: {path}: " in ended.stdout
    assert paths[0].read_bytes() == paths[1].read_bytes()
    read(paths[0])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["fabric/latency", "fabric/rate", "--timeline", "t.json"], "--timeline"),
        (["fabric/latency", "--fabric", "shm", "--timeline", "t.json"], "'shm'"),
        (["fabric/latency", "--timeline-window", "1us-2us"], "--timeline FILE"),
        (["fabric/latency", "--timeline", "t.json", "--timeline-window", "2us-1us"], "'2us-1us'"),
        (["fabric/latency", "--timeline", "no/t.json"], "no/t.json"),
    ],
)
def test_wrong_options_are_refused(words: list[str], named: str, tmp_path: Path) -> None:
    ended = pyrdma("run", *words, cwd=tmp_path)
    assert ended.returncode != 0
    assert named in ended.stderr
