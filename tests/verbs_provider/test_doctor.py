"""What the doctor says of real NICs, found and missing."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from pyrdma import devices, doctor


def no_problem(_: str = "") -> str:
    return ""


def test_what_would_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "mlx5_0 port 1 GID 3 (RoCE v2, 10.10.1.1, ens1), chosen for any device"
    monkeypatch.setattr(doctor, "fabric_problem", no_problem)
    monkeypatch.setattr(devices, "choose", lambda: {"reason": reason})
    [line] = [check for check in doctor.checks() if check.name == "fabric verbs"]
    assert line.ok
    assert line.found == f"ready: {reason}"


def test_the_peer_for_nics_is_listed() -> None:
    [line] = [check for check in doctor.checks() if check.name == "peer ib_write_lat"]
    assert line.ok or line.remedy == "apt install perftest"


def test_locked_memory_has_a_remedy_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    [line] = [check for check in doctor.checks() if check.name == "locked memory"]
    assert not line.ok
    assert line.found == "8192 KiB"
    for part in ("'* - memlock unlimited'", "'root - memlock unlimited'", "LimitMEMLOCK=infinity"):
        assert part in line.remedy


def test_the_connection_manager_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rdma_cm"
    line = doctor._connections(file)
    assert not line.ok
    assert "modprobe rdma_ucm" in line.remedy
    file.touch()
    assert doctor._connections(file).ok
    monkeypatch.setattr(os, "access", lambda *_: False)
    line = doctor._connections(file)
    assert not line.ok
    assert str(file) in line.found
    assert "rdma-core" in line.remedy
