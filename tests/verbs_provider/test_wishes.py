"""The choice of a node's device, as text and as an object: bounds and spellings."""

from __future__ import annotations

from typing import Any

import pytest

import pyrdma as rd
from pyrdma.devices import Wish
from tests.errors import raises


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("fd00::2", "fd00::2"),
        ("fe80::1", "fe80::1"),
        ("::1", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:0db8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
        ("::ffff:10.10.1.2", "10.10.1.2"),
        ("10.10.1.2", "10.10.1.2"),
    ],
)
def test_addresses_are_written_as_those_of_gids(text: str, address: str) -> None:
    assert Wish.parse(text) == Wish(address=text)
    assert Wish(address=text).address == address


@pytest.mark.parametrize("text", ["mlx5_0:1:-1", "mlx5_0:1", "mlx5_0:+1"])
def test_the_best_gid_may_be_left_open(text: str) -> None:
    assert Wish.parse(text) == Wish("mlx5_0", 1)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("mlx5_0:99999999999", ["port", 99999999999, 0, 255]),
        ("mlx5_0:256", ["port", 256, 255]),
        ("mlx5_0:-1", ["port", -1]),
        ("mlx5_0:1:256", ["gid_index", 256, 255, -1]),
        ("mlx5_0:1:-2", ["gid_index", -2]),
        ("fe80::1%eth0", ["%eth0"]),
    ],
)
def test_what_is_out_of_bounds_is_named(text: str, values: list[object]) -> None:
    with raises(rd.InvalidArgument, *values):
        Wish.parse(text)


@pytest.mark.parametrize(
    "text", ["mlx5_0:one", "mlx5_0:1_0", "mlx5_0:", "a:1:2:3", "10.10.1.256", "10.1", "fe80::xyz"]
)
def test_what_is_neither_name_nor_address(text: str) -> None:
    with raises(rd.InvalidArgument, text, "mlx5_0:1:3"):
        Wish.parse(text)


@pytest.mark.parametrize(
    ("wish", "values"),
    [
        ({"port": 1.5}, ["port", 1.5]),
        ({"port": "1"}, ["port", "'1'"]),
        ({"gid_index": None}, ["gid_index", None]),
        ({"address": "mlx5_0"}, ["address", "mlx5_0"]),
    ],
)
def test_a_wish_made_directly_is_checked_alike(wish: dict[str, Any], values: list[object]) -> None:
    with raises(rd.InvalidArgument, *values):
        Wish(**wish)


def test_clusters_check_their_wish() -> None:
    with raises(rd.InvalidArgument, "port", 300):
        rd.Cluster.local(nodes=2, fabric="verbs", device="mlx5_0:300")
