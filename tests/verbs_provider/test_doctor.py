"""The doctor's report on real NICs, found and missing."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyrdma import devices, doctor
from pyrdma.commands import machine
from tests.errors import unnamed


@pytest.fixture(autouse=True)
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def no_problem(_: str = "") -> str:
    return ""


def test_what_would_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "mlx5_0 port 1 GID 3 (RoCE v2, 10.10.1.1, ens1), chosen for any device"
    monkeypatch.setattr(doctor, "fabric_problem", no_problem)
    monkeypatch.setattr(devices, "choose", lambda: {"reason": reason})
    [line] = [check for check in doctor.checks() if check.name == "fabric verbs"]
    assert line.ok
    assert reason in line.found


def test_the_peer_for_nics_is_listed() -> None:
    [line] = [check for check in doctor.checks() if check.name == "peer ib_write_lat"]
    assert line.ok or line.remedy == "sudo apt-get install -y perftest"


def test_root_needs_no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not any("sudo" in check.remedy for check in doctor.checks())


def test_locked_memory_has_a_remedy_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    [line] = [check for check in doctor.checks() if check.name == "locked memory"]
    assert not line.ok
    assert line.found == "8192 KiB"
    assert "LimitMEMLOCK=infinity" in line.note
    written = line.remedy.split(" | ")[0]
    said = subprocess.run(["sh", "-c", written], capture_output=True, text=True, check=True).stdout
    assert said == "* - memlock unlimited\nroot - memlock unlimited\n"


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


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", "40")
    machine.show_doctor()
    return capsys.readouterr().out.splitlines()


def test_commands_can_be_pasted_as_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = f"pip install '{'x' * 90}[controller]' [bold]"
    lacking = doctor.Check("tables", False, "missing [red]", remedy, "a note")
    monkeypatch.setattr(doctor, "checks", lambda: [lacking])
    lines = shown(monkeypatch, capsys)
    assert remedy in lines, "on one line, brackets and all"
    assert "# tables: a note" in lines, "which a shell passes over"
    assert any("missing [red]" in line for line in lines)


def test_a_missing_extra_is_installed_by_what_the_package_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "CONTROLLER", ("pandas", "no_such_module"))
    [line] = [check for check in doctor.checks() if check.name == "tables and figures"]
    assert unnamed(line.found, "no_such_module") == []
    assert unnamed(line.found, "pandas") == ["pandas"]
    words = shlex.split(line.remedy)
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    wanted = [row for row in metadata.requires("pyrdma") or [] if "controller" in row]
    assert [re.split("[<>=]", word)[0] for word in words[4:]] == [
        re.split("[<>=;]", row)[0].strip() for row in wanted
    ]
    asked = subprocess.run([*words, "--dry-run"], capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr


def test_a_build_without_the_headers_is_told_how_to_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_has_provider", lambda: False)
    monkeypatch.setattr(doctor, "fabric_problem", lambda name: name)
    [line] = [check for check in doctor.checks() if check.name == "fabric verbs"]
    install, _, build = line.remedy.partition(" && ")
    assert install == "sudo apt-get install -y libibverbs-dev librdmacm-dev"
    words = shlex.split(build)
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert "--force-reinstall" in words
    assert Path(words[-1]).samefile(Path(__file__).parents[2])


def test_a_missing_library_of_a_system_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        ("libone", "libone-dev", True, "part: no libone"),
        ("libtwo", "libtwo0", False, "no libtwo"),
        ("libthree", "libthree0", False, ""),
    ]
    monkeypatch.setattr(doctor, "native", lambda: SimpleNamespace(libraries=lambda: rows))
    one, two, three = doctor._libraries()
    assert not one.ok
    assert one.found == "part: no libone"
    assert one.remedy.startswith("sudo apt-get install -y libone-dev && ")
    assert "pip install" in one.remedy
    assert two.remedy == "sudo apt-get install -y libtwo0"
    assert three.ok
    assert not three.remedy
