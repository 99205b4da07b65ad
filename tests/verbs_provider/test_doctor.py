"""The doctor's report on real NICs, found and missing."""

from __future__ import annotations

import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyrdma import devices, doctor, extras
from pyrdma.commands import machine
from tests.errors import unnamed


@pytest.fixture(autouse=True)
def not_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Be a user who may use sudo, on a machine with apt's lists of packages."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(doctor, "_has_sudo", lambda: True)
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/debian_Packages.lz4").touch()
    monkeypatch.setattr(doctor, "_APT_LISTS", tmp_path / "lists")


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


def test_without_sudo_a_command_asks_for_the_password_of_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "_has_sudo", lambda: False)
    assert shlex.split(doctor._as_root("modprobe a", "echo 'b c'")) == [
        *("su", "-", "-c", "modprobe a && echo 'b c'")
    ]


@pytest.mark.parametrize(("user", "sudo"), [(0, False), (1000, True), (1000, False)])
def test_a_shell_reads_every_command(
    user: int, sudo: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(doctor, "_has_sudo", lambda: sudo)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(doctor, "CONTROLLER", ("no_such_module",))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    commands = "\n".join(check.remedy for check in doctor.checks())
    assert commands.count("apt-get install") >= 8
    done = subprocess.run(["sh", "-n", "-c", commands], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_lists_apt_updates_them_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_APT_LISTS", tmp_path)
    assert doctor._apt_install("a") == "sudo apt-get update && sudo apt-get install -y a"


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


def test_an_extra_keeps_the_conditions_of_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ["a>=1", 'b==2; python_version < "3.11" and extra == "deploy"', 'c; extra == "deploy"']
    monkeypatch.setattr(metadata, "requires", lambda _: [*rows, "d; extra == 'other'"])
    words = shlex.split(extras.install_extra("deploy"))
    assert words[-2:] == ['b==2; python_version < "3.11"', "c"]
    assert "a>=1" not in words


def test_a_module_of_an_extra_is_named_with_the_extra() -> None:
    assert "the module pandas.core is missing" in extras.lacking_extra("pandas.core")
    assert extras.install_extra("controller") in extras.lacking_extra("pandas")
    assert extras.lacking_extra("no_such_module") == extras.lacking_extra(None) == ""


def test_what_real_nics_lack_decides_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "fabric_problem", lambda name: name)
    monkeypatch.setattr(doctor, "_has_provider", lambda: True)
    monkeypatch.setattr(devices, "problem", lambda: "cannot open libibverbs.so.1")
    assert "libibverbs1" in doctor._fabric("verbs").remedy
    monkeypatch.setattr(devices, "problem", lambda: "")
    monkeypatch.setattr(devices, "entries", list)
    monkeypatch.setattr(doctor, "_interface", lambda: "ens3")
    add = "sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev ens3"
    assert doctor._fabric("verbs").remedy == add
    monkeypatch.setattr(devices, "entries", lambda: ["a device that does not fit"])
    assert doctor._fabric("verbs").remedy == "", "the finding says what the device lacks"


def test_the_interface_is_one_of_this_machine() -> None:
    assert doctor._interface() in {
        *(path.name for path in Path("/sys/class/net").iterdir()),
        "eth0",
    }


def test_a_wheel_cannot_be_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    origin = f'{{"url": "file://{tmp_path}/pyrdma-0.1.0.whl", "archive_info": {{}}}}'
    wheel = SimpleNamespace(read_text=lambda _: origin)
    monkeypatch.setattr(metadata, "distribution", lambda _: wheel)
    command, note = doctor._build_again()
    assert command == ""
    assert "in its source" in note


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
