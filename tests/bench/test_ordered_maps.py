"""The benchmark that chose the map of eRPC's ordered store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrdma.bench import peers


def test_lmdb_scans_show_one_moment_and_nothing_is_left() -> None:
    module = peers.load("ordered_maps")
    there = module.available()
    if not there.ok:
        pytest.skip(f"{module.NAME}: {there.reason}; to get it: {there.install_command}")
    values = module.run(["lmdb_mixed_scan_rate", "lmdb_get_rate", "lmdb_put_rate"], seconds=0.05)
    assert values["lmdb_mixed_scan_rate"] == 0
    assert values["lmdb_get_rate"] > 1e4
    assert values["lmdb_put_rate"] > 1e2
    assert list(Path("/dev/shm").glob("pyrdma-ordered-maps-*")) == []
