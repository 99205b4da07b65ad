"""Every profile names unit and source of every parameter; bad profiles test the rule."""

from __future__ import annotations

import pytest

from tests.tidy.profile_rules import claim_roles, profile_sources
from tests.tidy.tree import Source, sources

ROLES = {"raft/rate": "calibration", "raft/peak": "validation"}
HEADER = """
name = "a"
title = "A"
testbed = "a"
nodes = 2
cores_per_node = 8
cpu_model = "c"
nic_model = "n"
"""


def profile(body: str, name: str = "a") -> Source:
    return Source(f"pyrdma/profiles/{name}.toml", HEADER + body)


def test_profiles_of_the_tree() -> None:
    files = sources()
    profiles = [file for file in files if file.path.startswith("pyrdma/profiles/")]
    assert profiles, "no profiles found"
    complaints = profile_sources(profiles, claim_roles(files))
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ("25", "write { value"),
        ('{ value = 25, unit = "Gbps" }', "write { value"),
        ('{ value = 25, source = "raft/rate" }', "write { value"),
        ('{ value = "25", unit = "Gbps", source = "raft/rate" }', "not a number"),
        ('{ value = true, unit = "Gbps", source = "raft/rate" }', "not a number"),
        ('{ value = 25, unit = "", source = "raft/rate" }', "names no unit"),
        ('{ value = 25, unit = "ns", source = "raft/rate" }', "the name says 'Gbps'"),
        ('{ value = 25, unit = "Gbps", source = "" }', "names no source"),
        ('{ value = 25, unit = "Gbps", source = "raft/gone" }', "is no claim"),
        ('{ value = 25, unit = "Gbps", source = "a guess" }', "is no claim"),
        ('{ value = 25, unit = "Gbps", source = "estimate: " }', "says nothing"),
        ('{ value = 25, unit = "Gbps", source = "raft/peak" }', "only calibration claims"),
    ],
)
def test_bad_parameter(entry: str, word: str) -> None:
    complaints = profile_sources([profile(f"[link]\nrate_gbps = {entry}\n")], ROLES)
    assert len(complaints) == 1, complaints
    assert word in complaints[0]
    assert "link.rate_gbps" in complaints[0]


def test_good_parameters() -> None:
    body = """
[link]
rate_gbps = { value = 25, unit = "Gbps", source = "raft/rate" }
mtu_bytes = { value = 1024, unit = "B", source = "standard: InfiniBand path MTU" }
"""
    assert profile_sources([profile(body)], ROLES) == []


def test_missing_header_key_and_missing_parameter() -> None:
    body = '[link]\nrate_gbps = { value = 1, unit = "Gbps", source = "raft/rate" }\n'
    assert (
        "`cpu_model`"
        in profile_sources(
            [Source("pyrdma/profiles/a.toml", HEADER.replace("cpu_model =", "x ="))], ROLES
        )[0]
    )
    complaints = profile_sources([profile(body), profile("", "b")], ROLES)
    assert complaints == ["pyrdma/profiles/b.toml: has no link.rate_gbps, which others have"]


RATE = '[link]\nrate_gbps = { value = 1, unit = "Gbps", source = "raft/rate" }\n'
CHILD = 'extends = ["base"]\n' + HEADER


def part(body: str) -> Source:
    return Source("pyrdma/profiles/parts/base.toml", body)


def test_inherited_parameters_count_and_parts_need_no_header() -> None:
    child = Source("pyrdma/profiles/a.toml", CHILD)
    assert profile_sources([part(RATE), child, profile(RATE, "b")], ROLES) == []


def test_a_parameter_that_equals_the_inherited_one() -> None:
    child = Source("pyrdma/profiles/a.toml", CHILD + RATE)
    (complaint,) = profile_sources([part(RATE), child], ROLES)
    assert complaint.startswith("pyrdma/profiles/a.toml: link.rate_gbps equals")
    other = Source("pyrdma/profiles/a.toml", CHILD + RATE.replace("raft/rate", "estimate: why not"))
    assert profile_sources([part(RATE), other], ROLES) == []


def test_an_unknown_parent() -> None:
    (complaint,) = profile_sources([Source("pyrdma/profiles/a.toml", CHILD)], ROLES)
    assert "extends 'base'" in complaint


def test_file_that_is_not_toml() -> None:
    assert "not TOML" in profile_sources([Source("pyrdma/profiles/a.toml", "name = ")], ROLES)[0]


def test_roles_come_from_the_claims_files() -> None:
    text = "paper: {key: raft}\nclaims:\n  - {id: rate, role: calibration}\n"
    assert claim_roles([Source("experiments/claims/raft.yaml", text)]) == {
        "raft/rate": "calibration"
    }
