"""Profiles load, name a source for every parameter, and agree with their calibration claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pyrdma import InvalidArgument, claims, profiles
from pyrdma.profiles import Profile
from tests.errors import raises
from tests.harness.support import pyrdma

TESTBEDS = {
    "cx3": "erpc/cx3",
    "cx4": "erpc/cx4",
    "cx5": "erpc/cx5",
    "cx5_ib100": "erpc/cx5_ib100",
    "krcore": "krcore/ib10",
    "c6525-25g": "loco/cloudlab_c6525_25g",
    "spindle": "spindle/spindle_local",
    "r320": "tailwind/cloudlab_r320",
    "d6515": "cloudlab/d6515",
    "cib": "nic/cib",
    "cx6": "nic/cx6",
    "cx4_direct": "nic/cx4_direct",
    "hdr100": "nic/hdr100",
    "pcie_x8": "nic/pcie_x8",
}
CLAIM = re.compile(rf"\b({'|'.join(claims.papers())})/([a-z0-9_]+)")
HEAD = """
title = "Mine"
testbed = "here"
nodes = 2
cores_per_node = 2
cpu_model = "a"
nic_model = "b"
"""
TESTBED_NAMES = set(TESTBEDS.values()) | {"erpc/cx5_pfc", "erpc/fig1"}


def test_each_testbed_has_its_profile() -> None:
    assert set(profiles.names()) == set(TESTBEDS)
    for name, testbed in TESTBEDS.items():
        profile = Profile.load(name)
        assert profile.name == name
        assert profile.testbed == testbed


def test_racks_of_r320_are_oversubscribed_as_the_testbed_is() -> None:
    values = Profile.load("r320").values()
    down = values["topology.nodes_per_tor"] * values["link.rate_gbps"]
    up = values["topology.uplinks_per_tor"] * values["topology.uplink_gbps"]
    assert values["topology.two_tier"] == 1
    assert down / up == pytest.approx(3.5)


@pytest.mark.parametrize("name", TESTBEDS)
def test_sources_name_calibration_claims_only(name: str) -> None:
    """A parameter may come from a calibration claim, never from a validation claim."""
    known = claims.load()
    for key, parameter in Profile.load(name).parameters.items():
        assert parameter.source.strip(), f"{name}: {key} has no source"
        found = [
            match.group()
            for match in CLAIM.finditer(parameter.source)
            if match.group() not in TESTBED_NAMES
        ]
        if not parameter.source.startswith(profiles.SOURCES):
            assert parameter.source in known, f"{name}: {key}: {parameter.source} is not a claim"
        if parameter.source.startswith("calibrated:"):
            assert found, f"{name}: {key} is calibrated by no claim"
        for claim in found:
            assert claim in known, f"{name}: {key} names an unknown claim {claim}"
            assert known[claim].role == "calibration", f"{name}: {key} is set by {claim}"


@pytest.mark.parametrize("name", TESTBEDS)
def test_estimates_and_documents_say_more_than_their_kind(name: str) -> None:
    for key, parameter in Profile.load(name).parameters.items():
        for kind in profiles.SOURCES:
            if parameter.source.startswith(kind):
                assert len(parameter.source.removeprefix(kind).split()) >= 3, f"{name}: {key}"


@pytest.mark.parametrize("name", TESTBEDS)
def test_native_simulator_takes_the_profile(name: str) -> None:
    from pyrdma import Cluster

    with Cluster.sim(nodes=2, profile=name, seed=1) as cluster:
        assert len(cluster.devices) == 2


def test_control_path_adds_up_to_the_measured_rates() -> None:
    """A server's NIC makes 712 connections a second, and verbs takes 15.7 ms for one.

    LITE's 2 ms for one are a prediction.
    """
    v = {k.removeprefix("control."): x for k, x in Profile.load("krcore").values().items()}
    create_qp = v["create_qp_commands"] * v["create_qp_command_us"]
    queue_and_transitions = 4 * v["command_us"]
    assert create_qp + queue_and_transitions == pytest.approx(1e6 / 712, rel=0.01)
    lite = 2 * v["create_us"] + create_qp + queue_and_transitions + v["handshake_us"]
    assert lite == pytest.approx(2000, rel=0.1)
    commands = (v["open_commands"] + v["pd_commands"]) * v["command_us"]
    system_calls = 9 * v["cpu.system_call_ns"] / 1000
    register = v["register_us"] + v["register_page_us"]
    verbs = v["open_us"] + commands + register + lite + system_calls
    assert verbs == pytest.approx(15700, rel=0.001)


def test_engine_costs_follow_from_the_quoted_losses() -> None:
    """A signaled request costs 25 % of the rate, a payload fetch 20 % (eRPC 4.2)."""
    for name in TESTBEDS:
        found = Profile.load(name).parameters
        base = found["nic.tx_message_ns"].value
        for key, claim, left in (
            ("nic.completion_ns", "erpc/signaled_rate_loss", 0.75),
            ("nic.dma_read_ns", "erpc/extra_dma_rate_loss", 0.80),
        ):
            if claim in found[key].source:
                assert base / (base + found[key].value) == pytest.approx(left, rel=0.01), name


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("estimate: a cache miss", True),
        ("calibrated: with an assumed split of both halves", True),
        ("vendor: the data sheet; 3 m of cable are an assumption", True),
        ("vendor: no estimate: measured twice", False),
        ("spindle/cal_link_rate", False),
    ],
)
def test_a_source_tells_an_estimate(source: str, expected: bool) -> None:
    assert profiles.Parameter(1.0, "ns", source).is_estimate is expected


def test_a_parameter_names_the_file_that_states_it() -> None:
    found = Profile.load("cx5", {"link.rate_gbps": 10}).parameters
    assert found["link.rate_gbps"].file == "override"
    assert found["switch.latency_ns"].file == "cx5.toml"
    assert found["nic.tx_message_ns"].file == "connectx5.toml"
    assert found["link.ack_bytes"].file == "roce.toml"
    assert found["cpu.atomic_ns"].file == "base.toml"


def write(folder: Path, name: str, body: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\n{body}')
    return path


RATE = '[link]\nrate_gbps = {{ value = {}, unit = "Gbps", source = "measured: in this test" }}\n'


def test_a_file_extends_a_profile_by_name_and_a_file_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "first", 'extends = "cx5"\ntitle = "First"\n' + RATE.format(12))
    second = write(tmp_path, "second", 'extends = "first.toml"\nnodes = 3\n')
    cx5, found = Profile.load("cx5"), Profile.load(second)
    assert (found.name, found.title, found.nodes) == ("second", "First", 3)
    assert found.cores_per_node == cx5.cores_per_node
    assert found.values() == {**cx5.values(), "link.rate_gbps": 12}
    assert found.digest() == Profile.load("cx5", {"link.rate_gbps": 12}).digest()


def test_of_several_parents_the_later_overrides(tmp_path: Path) -> None:
    write(tmp_path, "slow", RATE.format(1))
    write(tmp_path, "fast", RATE.format(400))
    path = write(tmp_path, "mine", 'extends = ["cx5", "slow.toml", "fast.toml", "base"]\n')
    values = Profile.load(path).values()
    assert values == {**Profile.load("cx5").values(), "link.rate_gbps": 400}


@pytest.mark.parametrize(
    ("extends", "values"),
    [
        ('"mine.toml"', ["extends", "mine.toml"]),
        ('"other.toml"', ["extends", "other.toml"]),
        ('"cx55"', ["cx55", "cx5"]),
        ('"gone.toml"', ["gone.toml"]),
        ('["cx5", 5]', ["['cx5', 5]"]),
        ('"base"', ["link.rate_gbps", "extends"]),
    ],
)
def test_wrong_parents(extends: str, values: list[str], tmp_path: Path) -> None:
    write(tmp_path, "other", 'extends = "mine.toml"\n')
    path = write(tmp_path, "mine", f"extends = {extends}\n" + HEAD)
    with raises(InvalidArgument, path, *values):
        Profile.load(path)


def test_a_part_is_no_testbed() -> None:
    with raises(InvalidArgument, "base", "cx5"):
        Profile.load("base")


def test_the_command_shows_what_is_resolved(tmp_path: Path) -> None:
    path = write(tmp_path, "mine", 'extends = "cx5"\n' + RATE.format(12))
    done = pyrdma("profiles", str(path), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["name"], shown["nodes"]) == ("mine", Profile.load("cx5").nodes)
    assert set(shown["parameters"]) == set(Profile.load(path).values())
    assert shown["parameters"]["link.rate_gbps"] == {
        "value": 12,
        "unit": "Gbps",
        "source": "measured: in this test",
        "file": "mine.toml",
    }
    table = pyrdma("profiles", str(path)).stdout
    assert re.search(r"^\W*link.rate_gbps +12 +Gbps +mine.toml +measured: in", table, re.MULTILINE)
    assert re.search(r"^\W*cpu.atomic_ns +6.25 +ns +base.toml +measured:", table, re.MULTILINE)


def test_the_command_lists_the_testbeds() -> None:
    shown = json.loads(pyrdma("profiles", "--json").stdout)
    assert {entry["name"]: entry["testbed"] for entry in shown} == TESTBEDS
    assert all(name in pyrdma("profiles").stdout for name in TESTBEDS)
