"""`pyrdma calibrate --fabric`: the written profile, and the parameters of known machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyrdma import Cluster, Unavailable, profiles, provenance, workload
from pyrdma.calibrate import machine, measure, solve
from pyrdma.calibrate.machine import Caches, Point, Samples
from pyrdma.calibrate.rows import PING_PONG, Row, rows
from pyrdma.calibrate.solve import Agreement
from pyrdma.profiles import Profile
from tests.errors import raises
from tests.harness.support import pyrdma

CACHES = Caches(1 << 16, 1 << 19, "measured: known")
CPU: dict[str, float] = {
    "cpu.clock_ghz": 3.2,
    "cpu.ipc": 1.75,
    "cpu.atomic_ns": 7.5,
    "cpu.clock_read_ns": 11,
    "cpu.system_call_ns": 140,
    "cpu.context_switch_ns": 1800,
    "cpu.process_start_ns": 600_000,
    "cpu.core_line_ns": 55,
    "cpu.near_line_ns": 4.5,
    "cpu.llc_line_ns": 21,
    "cpu.memory_line_ns": 95,
    "cpu.memory_loaded_ns": 160,
    "cpu.near_copy_gbps": 410,
    "cpu.llc_copy_gbps": 190,
    "cpu.memory_copy_gbps": 77,
    "cpu.memory_gbps": 154,
    "cpu.near_bytes": CACHES.near,
    "cpu.llc_bytes": CACHES.llc,
}
CASES: dict[str, dict[str, float]] = {
    "shm": {
        "cpu.post_request_ns": 6,
        "cpu.post_ns": 14,
        "cpu.poll_ns": 12,
        "nic.rx_read_ns": 133,
        "nic.rx_atomic_ns": 25,
        "nic.rx_send_ns": 210,
        "link.rate_gbps": 340,
        "control.create_us": 0.9,
        "control.register_us": 1.3,
        "control.handshake_us": 2.4,
    },
    "verbs": {
        "cpu.post_ns": 90,
        "nic.rx_latency_ns": 800,
        "pcie.read_ns": 500,
        "nic.rx_atomic_ns": 130,
        "nic.rx_send_ns": 90,
        "nic.tx_message_ns": 150,
        "nic.qp_message_ns": 260,
        "nic.qp_read_ns": 400,
        "nic.atomic_address_ns": 700,
        "link.rate_gbps": 60,
        "control.command_us": 200,
        "control.open_us": 9000,
        "control.create_us": 40,
        "control.create_qp_command_us": 300,
        "control.register_us": 25,
        "control.register_page_us": 0.2,
        "control.handshake_us": 300,
    },
    "software": {
        "cpu.post_request_ns": 9000,
        "nic.rx_latency_ns": 700,
        "nic.rx_read_ns": 5000,
        "nic.rx_atomic_ns": 900,
        "nic.rx_send_ns": 1100,
        "link.rate_gbps": 4,
        "control.command_us": 60,
    },
}
"""Parameters of known machines. A device of software works in the post."""


WITHIN_A_TURN = {"nic.rx_read_ns", "nic.rx_send_ns", "nic.rx_atomic_ns", "cpu.poll_ns"}


def walk(values: Mapping[str, float], size: int, memory: float) -> float:
    """Return the mean latency of a line of a footprint, as the caches share it."""
    near = min(1.0, values["cpu.near_bytes"] / size)
    llc = min(1.0, values["cpu.llc_bytes"] / size) - near
    lines = near * values["cpu.near_line_ns"] + llc * values["cpu.llc_line_ns"]
    return lines + (1 - near - llc) * memory


class KnownMachine:
    """A machine whose parameters are known: its operations by formula, its fabric in `sim`."""

    caches = CACHES
    cores = 2

    def __init__(self, case: str) -> None:
        self.case = case
        self.fabric = fabric = "shm" if case == "shm" else "verbs"
        values = {key: found.value for key, found in measure._stated(fabric).items()}
        values.update(CPU)
        values.update({key: value for key, (value, _) in measure._derived(fabric, values).items()})
        self.values = {**values, **CASES[case]}

    def operation(self, kind: str, bytes_: int = 0) -> float:
        v = self.values
        cycle = 1 / v["cpu.clock_ghz"]
        if kind == "line":
            return walk(v, bytes_, v["cpu.memory_line_ns"])
        return {
            "add": cycle,
            "code": self.code_instructions() * cycle / v["cpu.ipc"],
            "atomic": v["cpu.atomic_ns"],
            "clock": v["cpu.clock_read_ns"],
            "system_call": v["cpu.system_call_ns"],
            "context_switch": v["cpu.context_switch_ns"],
            "process_start": v["cpu.process_start_ns"],
            "core_line": v["cpu.core_line_ns"],
            "line_loaded": walk(v, max(bytes_, 1), v["cpu.memory_loaded_ns"]),
        }[kind]

    def code_instructions(self) -> float:
        return 90

    def run(self, point: Point) -> float:
        if point.nodes == 0:  # all cores copy: two nodes share the memory of one machine
            return 4096 * 8 / 2 / self.values["cpu.memory_gbps"]
        about = machine.simulate(self.values, point, 1, 100)
        return machine.simulate(self.values, point, 1, about)


@pytest.fixture(params=sorted(CASES))
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KnownMachine:
    monkeypatch.setattr(measure, "REPETITIONS", 1)
    monkeypatch.setattr(measure, "RUNS", 1)
    return KnownMachine(request.param)


def test_the_parameters_of_a_known_machine_come_back(known: KnownMachine, tmp_path: Path) -> None:
    found = measure.profile_of(measure.record(known, known.fabric))
    path = tmp_path / "twin.toml"
    path.write_text(found.document("twin"), encoding="utf-8")
    profile = Profile.load(path)

    assert (profile.nodes, profile.cores_per_node) == (2, 1)
    assert list(profile.parameters) == list(profiles.parameters())
    # A waiting thread sees a completion at its next turn, so a latency is known to within a turn.
    turn = 2 * known.values["cpu.empty_poll_ns"]
    for key, value in {**CPU, **CASES[known.case]}.items():
        within = turn if key in WITHIN_A_TURN else None
        assert profile.parameters[key].value == pytest.approx(value, rel=0.03, abs=within), key
        assert profile.parameters[key].source.startswith("measured: "), key
    for key, parameter in profile.parameters.items():
        assert parameter.source.startswith(profiles.SOURCES), (key, parameter.source)
        assert parameter.file == "twin.toml", "the file stands alone"
    for agreement in found.agreements:
        assert abs(agreement.error) < 0.02, agreement.row.what
    with Cluster.sim(nodes=3, profile=path) as cluster:
        result = cluster.run(workload.VerbsLoad(op="read"), duration_s=2e-5)
    assert result.value("rate") > 0


def test_a_row_that_no_value_explains_stays_at_the_bound() -> None:
    row = Row("write", Point(workload.VerbsLoad()), "cpu.post_ns")
    for target, expected in ((40.0, 0.0), (150.0, 100.0)):
        values = {"cpu.post_ns": 7.0}
        (found,) = solve.solve(
            [row], {"write": target}, values, lambda v, _: 50.0 + v["cpu.post_ns"]
        )
        assert values["cpu.post_ns"] == pytest.approx(expected, abs=0.2)
        assert found.measured == target
        assert found.simulated == pytest.approx(max(target, 50.0), rel=0.01)


@pytest.mark.parametrize("fabric", ["shm", "verbs"])
def test_each_row_has_its_own_parameter_and_no_system(fabric: str) -> None:
    table = rows(fabric, CACHES, CACHES.llc)
    solved = [row.parameter for row in table if row.parameter]
    assert len(solved) == len(set(solved)) < len(table)
    assert set(solved) <= set(profiles.parameters())
    assert len({row.what for row in table}) == len(table)
    assert {row.point.workload.name for row in table} == {"memcpy", "verbs_load", "control_path"}


def test_a_ping_pong_tells_the_wait_for_a_peers_line() -> None:
    values = {"cpu.core_line_ns": 30.0}
    row = Row(PING_PONG, Point(workload.VerbsLoad()))
    found = dict(measure._handed_over([Agreement(row, 70.0, 18.0)], values))
    assert {key: value for key, (value, _) in found.items()} == {"cpu.nic_line_ns": 52.0}
    assert not measure._handed_over([Agreement(row, 200_000.0, 18.0)], values), "one core for both"


def test_the_lower_quartile_counts() -> None:
    values = iter([10.0, 14.0, 1000.0, 12.0, 8.0])
    samples = Samples()
    samples.take({"one": lambda: next(values)}, 5)
    assert samples.quartile("one") == 10.0
    assert samples.spread("one") == pytest.approx(0.2)


def test_wrong_arguments_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    there = tmp_path / "there.toml"
    there.write_text("mine")
    for arguments, named in (
        (["--fabric", "sim"], "sim"),
        (["--fabric", "shm", "--device", "mlx5_0"], "mlx5_0"),
        (["--fabric", "shm", "--out", str(there)], "there.toml"),
        (["--fabric", "shm", "--out", str(tmp_path / "a.txt")], "a.txt"),
        (["--out", str(tmp_path / "a.toml")], "--fabric"),
        (["--fabric", "verbs", "--device", "nothing0"], "verbs"),
    ):
        done = pyrdma("calibrate", *arguments, cwd=tmp_path)
        assert done.returncode != 0, arguments
        assert named in done.stderr, done.stderr
    assert there.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.toml"]


def test_one_core_cannot_hold_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "usable_cores", lambda: 1)
    with raises(Unavailable, 1, "2 cores"):
        measure.calibrate("shm")


def test_a_machine_without_known_caches_has_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    assert Caches.of_this_machine().source.startswith("estimate:")


@pytest.mark.slow
def test_the_cpu_alone(tmp_path: Path) -> None:
    done = pyrdma("calibrate", "cpu", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {row["key"]: row for row in json.loads(done.stdout)}
    assert {"cpu.clock_ghz", "cpu.ipc", "cpu.core_line_ns", "cpu.llc_copy_gbps"} <= set(found)
    assert 0.3 < found["cpu.clock_ghz"]["value"] < 8
    assert all(row["source"].startswith("measured: ") for row in found.values())
