"""Turns, medians, ratios and skips of ``pyrdma bench``, with made-up benchmarks."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from pyrdma import InvalidArgument, systems
from pyrdma.bench import benchmark, command, registry, report, runner
from pyrdma.bench.benchmark import Benchmark, Better, PeerRun, Row
from pyrdma.bench.peer import Availability
from tests.errors import raises, unnamed

HERE = Availability(True, "", "apt-get install peer")
AWAY = Availability(False, "not on PATH: peer", "apt-get install peer")


def playing(values: Iterable[float], log: list[str], who: str) -> Callable[[], float]:
    remaining = iter(values)

    def measure() -> float:
        log.append(who)
        return next(remaining)

    return measure


def made_up(
    name: str = "sim/x",
    ours: Callable[[], float] = lambda: 2.0,
    peers: Callable[[], float] | None = lambda: 1.0,
    there: Availability = HERE,
    better: Better = Better.HIGHER,
    rounds: int = 3,
    opt_in: bool = False,
) -> Benchmark:
    side = PeerRun("Peer", peers, lambda: there) if peers else None
    return Benchmark(name, "op/s", better, ours, "made up", side, rounds, opt_in)


def test_sides_take_turns_and_medians_are_reported() -> None:
    log: list[str] = []
    ours = playing([9.0, 1.0, 2.0], log, "ours")
    peers = playing([4.0, 400.0, 3.0], log, "peer")
    (row,) = runner.run([made_up(ours=ours, peers=peers)])
    assert log == ["ours", "peer", "peer", "ours", "ours", "peer"]
    assert (row.value, row.peer_value, row.ratio) == (2.0, 4.0, 0.5)


@pytest.mark.parametrize(
    ("better", "expected"), [(Better.HIGHER, 4.0), (Better.LOWER, 0.25)], ids=["rate", "latency"]
)
def test_a_ratio_above_one_means_that_ours_is_better(better: Better, expected: float) -> None:
    assert benchmark.ratio(better, 8.0, 2.0) == expected
    assert benchmark.ratio(better, None, 2.0) is None
    assert benchmark.ratio(better, 8.0, None) is None


def test_rounds_end_with_the_budget_but_each_runs_once() -> None:
    log: list[str] = []

    def slow() -> float:
        log.append("slow")
        time.sleep(0.05)
        return 1.0

    rows = runner.run([made_up(ours=slow, peers=None), made_up("sim/y", peers=None)], budget_s=0)
    assert log == ["slow"]
    assert [row.value for row in rows] == [1.0, 2.0]
    runner.run([replace(made_up(ours=slow, peers=None), least=2)], budget_s=0)
    assert log == ["slow"] * 3, "twice where fewer say little"


def test_a_missing_peer_is_skipped_loudly() -> None:
    notices: list[str] = []
    (row,) = runner.run([made_up(there=AWAY)], notice=notices.append)
    [notice] = notices
    assert unnamed(notice, "SKIPPED", "Peer", "sim/x", AWAY.reason, AWAY.install_command) == []
    assert row == Row("sim/x", "op/s", 2.0, "Peer", None, None)


def test_a_broken_side_leaves_the_other_numbers() -> None:
    def broken() -> float:
        raise OSError("no luck")

    notices: list[str] = []
    rows = runner.run(
        [made_up(ours=broken), made_up("sim/y", peers=broken), made_up("sim/z")],
        notice=notices.append,
    )
    assert [(row.value, row.peer_value, row.ratio) for row in rows] == [
        (None, 1.0, None),
        (2.0, None, None),
        (2.0, 1.0, 2.0),
    ]
    ours, peers = notices
    assert unnamed(ours, "FAILED", "sim/x", "OSError", "no luck") == []
    assert unnamed(peers, "FAILED", "Peer", "sim/y", "OSError", "no luck") == []


def test_names_select_by_their_beginning() -> None:
    everything = [made_up("sim/a"), made_up("shm/b"), made_up("build/c", opt_in=True)]
    names = [[b.name for b in runner.select(everything, n)] for n in ([], ["s"], ["build"])]
    assert names == [["sim/a", "shm/b"], ["sim/a", "shm/b"], ["build/c"]]
    with raises(InvalidArgument, "shm/bb", "shm/b"):
        runner.select(everything, ["shm/bb"])
    with raises(InvalidArgument, "zzz", "sim/a", "shm/b", "build/c"):
        runner.select(everything, ["zzz"])


def test_json_is_the_fixed_array() -> None:
    rows = [
        Row("sim/a", "op/s", 12345678.9, "Peer", 3.0, 12345678.9 / 3),
        Row("python/b", "s", None, None, None, None),
    ]
    assert json.loads(report.as_json(rows)) == [
        {
            "name": "sim/a",
            "value": 12345700.0,
            "unit": "op/s",
            "peer": "Peer",
            "peer_value": 3.0,
            "ratio": 4115230.0,
        },
        {
            "name": "python/b",
            "value": None,
            "unit": "s",
            "peer": None,
            "peer_value": None,
            "ratio": None,
        },
    ]


def test_the_command_prints_json_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "benchmarks", lambda: [made_up(there=AWAY)])
    assert command(["sim"], as_json=True) == 0
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)
    assert list(row) == ["name", "value", "unit", "peer", "peer_value", "ratio"]
    assert unnamed(captured.err, "SKIPPED", "Peer") == []


def test_the_command_prints_a_table_and_its_status_tells_of_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> float:
        raise OSError("no luck")

    monkeypatch.setattr(registry, "benchmarks", lambda: [made_up(), made_up("sim/y", ours=broken)])
    assert command() == 1
    captured = capsys.readouterr()
    assert "2.00" in captured.out
    assert unnamed(captured.err, "FAILED", "sim/y") == []


def test_the_registry_has_what_was_promised() -> None:
    found = {b.name: (b.better, b.peer.name if b.peer else None) for b in registry.benchmarks()}
    names = {
        (system, row.name)
        for system, part in zip(systems.NAMES, systems.parts("benchmarks"), strict=True)
        for row in part.benchmarks()
    }
    for system, name in names:
        assert re.match(rf"{system}(_\w+)?/", name), "it begins with the system's name"
    assert set(found) >= {name for _, name in names}
    assert {name: found[name] for name in found.keys() - {name for _, name in names}} == {
        "sim/one_sided_16": (Better.HIGHER, "SimGrid"),
        "sim/one_sided_1000": (Better.HIGHER, "SimGrid"),
        "sim/awaited_sleep": (Better.HIGHER, None),
        "sim/node_memory": (Better.LOWER, None),
        "shm/write_latency_64": (Better.LOWER, "UCX"),
        "shm/write_rate_64": (Better.HIGHER, "UCX"),
        "shm/read_rate_8": (Better.HIGHER, "Open MPI"),
        "shm/fetch_add_rate_8": (Better.HIGHER, "Open MPI"),
        "shm/send_rate_64": (Better.HIGHER, "UCX"),
        "verbs/write_latency_8": (Better.LOWER, "perftest"),
        "verbs/send_latency_8": (Better.LOWER, "perftest"),
        "verbs/read_latency_8": (Better.LOWER, "perftest"),
        "verbs/fetch_add_latency_8": (Better.LOWER, "perftest"),
        "verbs/write_bandwidth_4096": (Better.HIGHER, "perftest"),
        "python/import": (Better.LOWER, None),
        "build/wheel": (Better.LOWER, None),
    }
