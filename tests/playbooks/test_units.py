"""The daemon's unit, and a run that goes on without this machine, on hosts with systemd."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.errors import unnamed
from tests.hosts.bed import Host, Hosts, why_not_here
from tests.playbooks.conftest import Play, files_of, inventory_of

UNIT = "/etc/systemd/system/pyrdma-daemon.service"
REASON = why_not_here(systemd=True)
pytestmark = [
    pytest.mark.skipif(bool(REASON), reason=f"no hosts with systemd here: {REASON}"),
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(2, systemd=True) as made:
        yield made


def listening(hosts: Hosts) -> dict[str, dict[str, Any]]:
    return {host.name: {"pyrdma_listen": f"{host.address}:7777"} for host in hosts}


def show(host: Host, unit: str, *properties: str) -> list[str]:
    words = [f"--property={name}" for name in properties]
    return host.run("systemctl", "show", "--value", *words, unit).stdout.split()


def may_raise_limits() -> bool:
    """Return whether root has CAP_SYS_RESOURCE here; some virtual machines take it away."""
    found = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> 24 & 1)


def places_of(token: str, host: Host) -> list[str]:
    """Return where a host shows a token: in arguments, environments, files or the journal."""
    found = []
    for pid in [host.pid, *host.processes()]:
        for name in ("cmdline", "environ"):
            file = Path(f"/proc/{pid}/{name}")
            found += [str(file)] if file.exists() and token.encode() in file.read_bytes() else []
    said = host.run("journalctl", "--no-pager", "--output=export").stdout
    found += ["the journal"] if token in said else []
    grep = ("grep", "-rlF", "--devices=skip", token, "/run/written", "/tmp", "/dev/shm")
    return found + host.run(*grep, check=False).stdout.split()


def test_the_daemon_is_a_unit_and_its_token_stays_secret(
    play: Play, hosts: Hosts, tmp_path: Path
) -> None:
    inventory = inventory_of(hosts, tmp_path, listening(hosts), pyrdma_huge_pages=0)
    before = files_of(hosts)
    done = play("site.yml", inventory, "-vvv")
    assert done.status == 0, done.text
    kept = tmp_path / "pyrdma.token"
    token = kept.read_text().strip()
    assert len(token) == 64
    assert kept.stat().st_mode & 0o777 == 0o600
    assert token not in done.text
    pids = []
    for host in hosts:
        assert set(show(host, "pyrdma-daemon", "ActiveState", "UnitFileState")) == {
            "active",
            "enabled",
        }
        [pid] = show(host, "pyrdma-daemon", "MainPID")
        pids.append(pid)
        assert "sleep 1000000" in host.processes().values(), "the program took its token"
        assert show(host, "pyrdma-daemon", "LimitMEMLOCK") == ["infinity"]
        if may_raise_limits():
            assert host.run("cat", "/tmp/daemon-memlock").stdout == "unlimited\n"
        assert places_of(token, host) == ["/run/written/etc/pyrdma/token"]
        verified = host.run("systemd-analyze", "verify", UNIT, check=False)
        assert (verified.returncode, verified.stderr) == (0, "")

    done = play("site.yml", inventory)
    assert set(done.changed.values()) == {0}, done.text
    assert [show(host, "pyrdma-daemon", "MainPID") for host in hosts] == [[pid] for pid in pids]

    inventory.write_text(inventory.read_text().replace("- one\n", "- two\n"))
    assert play("site.yml", inventory).status == 0
    assert [show(host, "pyrdma-daemon", "MainPID") for host in hosts] != [[pid] for pid in pids]

    done = play("clean.yml", inventory)
    assert done.status == 0, done.text
    assert not kept.exists()
    assert files_of(hosts) == before
    for host in hosts:
        assert show(host, "pyrdma-daemon", "LoadState") == ["not-found"]
        assert "sleep 1000000" not in host.processes().values()


def test_a_run_goes_on_alone_and_is_collected(play: Play, hosts: Hosts, tmp_path: Path) -> None:
    experiment = {"pyrdma_experiment": "fabric/latency", "pyrdma_run_options": ["3"]}
    results = tmp_path / "results"
    inventory = inventory_of(
        hosts, tmp_path, listening(hosts), pyrdma_huge_pages=0, pyrdma_results=str(results)
    )
    done = play("run.yml", inventory, variables=experiment)
    assert done.status != 0
    assert unnamed(done.error_of("node-0"), "node-0", "site.yml") == []
    assert play("site.yml", inventory).status == 0

    kinds = [(host.root / "opt/pyrdma/current/text").read_text().split() for host in hosts]
    assert ["--controller" in kind for kind in kinds] == [True, False], "the first host drives"
    done = play("run.yml", inventory, "--check", variables=experiment)
    assert done.status == 0, done.text
    assert show(hosts[0], "pyrdma-run", "LoadState") == ["not-found"]
    done = play("run.yml", inventory, variables=experiment)
    assert (done.status, "started" in done.text) == (0, True), done.text
    assert set(show(hosts[0], "pyrdma-run", "ActiveState", "LimitMEMLOCK")) == {
        "active",
        "infinity",
    }
    deadline = time.monotonic() + 60
    while show(hosts[0], "pyrdma-run", "SubState") != ["exited"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = play("run.yml", inventory, variables=experiment)
    assert ("ended" in done.text, done.changed) == (True, {"node-0": 0}), done.text

    done = play("collect.yml", inventory)
    assert done.status == 0, done.text
    [point] = results.glob("fabric/latency/verbs@bed/points/*.jsonl")
    seen = yaml.safe_load(point.read_text())["all"]  # the stand-in keeps its inventory
    assert [*seen["hosts"]] == ["node-0", "node-1"]
    assert seen["hosts"]["node-1"] == {
        "pyrdma_address": hosts[1].address,
        "pyrdma_listen": f"{hosts[1].address}:7777",
        "pyrdma_testbed": "namespaces",
    }
    assert seen["vars"] == {"pyrdma_token_file": "/etc/pyrdma/token"}
    assert play("collect.yml", inventory).changed == {"node-0": 0}
    point.write_text("another measurement")
    done = play("collect.yml", inventory)
    assert done.failed == {"node-0": 1}
    assert unnamed(done.error_of("node-0"), "node-0", point) == []
    assert point.read_text() == "another measurement"

    assert play("clean.yml", inventory).status == 0
    assert (hosts[0].root / "var/lib/pyrdma/results").is_dir(), "what was measured stays"
    assert show(hosts[0], "pyrdma-run", "LoadState") == ["not-found"]
