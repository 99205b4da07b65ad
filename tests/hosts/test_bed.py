"""The test bed of namespaces: hosts that are apart, fail on request, and leave nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.errors import raises
from tests.hosts.bed import ROOT, Host, Hosts, why_not_here
from tests.hosts.folders import cgroups
from tests.hosts.waiting import soon

pytestmark = pytest.mark.skipif(bool(why_not_here()), reason=f"no hosts here: {why_not_here()}")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as made:
        yield made


def ssh(hosts: Hosts, host: Host, *command: str) -> subprocess.CompletedProcess[str]:
    words = hosts.ssh(host, *command)
    words[1:1] = ["-o", "ConnectTimeout=2"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)


def answers(host: Host, address: str) -> bool:
    """Return whether sshd of another host answers this one."""
    probe = f"import socket; socket.create_connection(({address!r}, 22), 1).recv(3)"
    return host.run("/usr/bin/python3", "-c", probe, check=False).returncode == 0


def test_ssh_reaches_each_host(hosts: Hosts) -> None:
    for host in hosts:
        done = ssh(hosts, host, "hostname; cat /etc/hostname")
        assert done.stdout.split() == [host.name, host.name], done.stderr


def test_the_inventory_lists_the_hosts(hosts: Hosts) -> None:
    document = yaml.safe_load(hosts.inventory.read_text())["all"]
    assert [*document["hosts"]] == ["node-0", "node-1"]
    assert document["hosts"]["node-1"]["pyrdma_address"] == hosts[1].address
    assert Path(document["vars"]["ansible_ssh_private_key_file"]).stat().st_mode & 0o77 == 0


def test_a_host_writes_into_its_own_root(hosts: Hosts) -> None:
    name = "pyrdma-hosts-written"
    for folder in ("/etc", "/opt", "/home", "/tmp", "/run", "/var/tmp", "/dev/shm"):
        hosts[0].run("touch", f"{folder}/{name}")
        assert (hosts[0].root / folder[1:] / name).exists()
        assert not (hosts[1].root / folder[1:] / name).exists()
        assert not Path(folder, name).exists()


def test_kernel_settings_of_the_machine_stay(hosts: Hosts) -> None:
    pages = Path("/proc/sys/vm/nr_hugepages")
    before = pages.read_text()
    hosts[0].run("sh", "-c", f"echo 7 >{pages}")
    assert hosts[0].run("cat", str(pages)).stdout == "7\n"
    assert pages.read_text() == before
    assert hosts[0].run("sh", "-c", "echo 1 >/proc/sys/vm/swappiness", check=False).returncode != 0


def test_the_driver_reaches_the_login_network_alone(hosts: Hosts) -> None:
    socket.create_connection((hosts[0].login, 22), 5).close()
    route = subprocess.run(["ip", "route", "get", hosts[0].address], capture_output=True, text=True)
    assert f"pyrdma-bed{hosts.number}" not in route.stdout
    assert answers(hosts[0], hosts[1].address)


def test_a_wire_is_pulled_and_plugged_in_again(hosts: Hosts) -> None:
    for network, address in (("login", hosts[1].login), ("experiment", hosts[1].address)):
        hosts[1].unplug(network)
        try:
            assert not answers(hosts[0], address), network
        finally:
            hosts[1].plug(network)
        assert soon(lambda: answers(hosts[0], address)), network  # noqa: B023 - used at once


def test_a_killed_sshd_leaves_what_it_started(hosts: Hosts) -> None:
    session = subprocess.Popen(hosts.ssh(hosts[0], "sleep 321"), stderr=subprocess.DEVNULL)
    assert soon(lambda: any("sleep 321" in line for line in hosts[0].processes().values()))
    hosts[0].kill_sshd()
    assert session.wait(10) != 0
    assert ssh(hosts, hosts[0], "true").returncode != 0
    left = hosts[0].processes()
    assert not any("sshd" in line for line in left.values()), left
    for pid in left:
        with contextlib.suppress(ProcessLookupError):  # it has noticed that its session ended
            os.kill(pid, signal.SIGKILL)
    hosts[0].start_sshd()
    assert ssh(hosts, hosts[0], "true").returncode == 0


def leftovers(hosts: Hosts) -> list[str]:
    """Return what is left of a bed on this machine."""
    found = [str(path) for path in [hosts.folder] if path.exists()]
    found += [name for name in devices() if name == f"pyrdma-bed{hosts.number}"]
    mounts = Path("/proc/mounts").read_text().splitlines()
    return found + [mount for mount in mounts if str(hosts.folder) in mount]


def devices() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def test_a_bed_leaves_nothing() -> None:
    with Hosts(2) as made:
        made[0].run("sh", "-c", "setsid sleep 654 >/dev/null 2>&1 &")
        namespace = Path(f"/proc/{made[0].pid}/ns/pid").readlink()
        assert any("sleep 654" in line for line in made[0].processes().values())
        made[1].die()
    assert leftovers(made) == []
    assert namespaces().isdisjoint({namespace})


def namespaces() -> set[Path]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/ns/pid"):
        with contextlib.suppress(OSError):
            found.add(entry.readlink())
    return found


def test_a_killed_bed_leaves_nothing() -> None:
    command = [sys.executable, "-m", "tests.hosts", "--count", "2"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            inventory = Path(process.stdout.readline().split()[1])
            wire = f"pyrdma-bed{inventory.parent.name.rpartition('-')[2]}"
            first = [child for child in _descendants(process.pid) if "host.sh" in child[1]]
            # unshare and the first process of each host, and what that has just forked
            assert len(first) >= 4, first
            assert wire in devices()
        finally:
            process.kill()
    assert soon(lambda: not any(Path(f"/proc/{pid}").exists() for pid, _ in first))
    assert soon(lambda: wire not in devices())
    assert inventory.parent.exists()
    with Hosts(1):
        pass
    assert not inventory.parent.exists(), "the next bed removes the folder of a killed one"


def _descendants(pid: int) -> list[tuple[int, str]]:
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append((child, Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")))
            found += _descendants(child)
    return found


def test_two_beds_live_beside_each_other() -> None:
    with Hosts(1) as one, Hosts(1) as other:
        assert one[0].login != other[0].login
        assert ssh(one, one[0], "true").returncode == ssh(other, other[0], "true").returncode == 0


@pytest.mark.parametrize("count", [0, 251])
def test_a_count_out_of_bounds_is_refused(count: int) -> None:
    with raises(ValueError, count):
        Hosts(count)


@pytest.mark.skipif(bool(why_not_here(systemd=True)), reason=why_not_here(systemd=True))
def test_hosts_with_systemd_run_units_and_leave_nothing() -> None:
    with Hosts(2, systemd=True) as made:
        done = ssh(made, made[1], "systemd-run --quiet --wait --pipe cat /proc/sys/kernel/hostname")
        assert done.stdout == "node-1\n", done.stderr
        swappiness = Path("/proc/sys/vm/swappiness").read_text()
        assert made[0].run("cat", "/proc/sys/vm/swappiness").stdout == swappiness
        groups = cgroups()
        assert groups is not None
        assert (groups / made.folder.name / "node-1").is_dir()
    assert leftovers(made) == []
    assert not (groups / made.folder.name).exists()
