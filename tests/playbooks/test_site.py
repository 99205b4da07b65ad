"""site.yml and clean.yml without systemd: once, again, with --check, and where a host is bad."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.errors import unnamed
from tests.hosts.bed import Hosts, why_not_here
from tests.playbooks.conftest import PLAYBOOKS, Play, files_of, inventory_of

needs_hosts = pytest.mark.skipif(bool(why_not_here()), reason=f"no hosts here: {why_not_here()}")
pytestmark = pytest.mark.timeout(600)
MOST_TASKS = 12
"""Most tasks that run on a host, since an emulated guest needs 10 s of CPU for each."""
ON_THE_CONTROLLER = {"assert", "debug", "fail", "set_fact", "import_role"}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as made:
        yield made


def test_syntax(play: Play, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {node-0: {}}}\n")
    names = sorted(path.name for path in PLAYBOOKS.glob("*.yml"))
    assert names == ["clean.yml", "collect.yml", "run.yml", "site.yml"]
    others = [str(PLAYBOOKS / name) for name in names[:-1]]
    done = play("site.yml", inventory, "--syntax-check", *others)
    assert done.status == 0, done.text


def tasks_of(document: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each task with its module, those of blocks too."""
    for task in document:
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))
        for key in task:
            if key.startswith("ansible.builtin."):
                yield key.removeprefix("ansible.builtin."), task


def test_few_tasks_run_on_a_host() -> None:
    count = 0
    for play in yaml.safe_load((PLAYBOOKS / "site.yml").read_text()):
        for _, task in tasks_of(play["tasks"]):
            name = task["ansible.builtin.import_role"]["tasks_from"]
            role = yaml.safe_load((PLAYBOOKS / f"roles/pyrdma/tasks/{name}.yml").read_text())
            for module, inner in tasks_of(role):
                count += module not in ON_THE_CONTROLLER and "delegate_to" not in inner
    assert 3 < count <= MOST_TASKS


@needs_hosts
@pytest.mark.slow
def test_hosts_are_set_up_once_and_cleaned(play: Play, hosts: Hosts, tmp_path: Path) -> None:
    inventory = inventory_of(hosts, tmp_path, pyrdma_huge_pages=6, pyrdma_listen="10.10.1.1:7777")
    before = files_of(hosts)

    done = play("site.yml", inventory, "--check")
    assert done.status == 0, done.text
    assert files_of(hosts) == before, "--check changes nothing"
    assert not (tmp_path / "pyrdma.token").exists()

    done = play("site.yml", inventory)
    assert done.status == 0, done.text
    assert all(done.changed.values()), done.text
    assert "no systemd" in done.text
    for host in hosts:
        program = host.run("readlink", "-f", "/opt/pyrdma/current/bin/pyrdma").stdout.split("/")
        assert program[:3] == ["", "opt", "pyrdma"]
        assert len(program[3]) == 20
        assert host.run("cat", "/proc/sys/vm/nr_hugepages").stdout == "6\n"
        assert "6" in (host.root / "etc/sysctl.d/60-pyrdma.conf").read_text()
        limits = (host.root / "etc/security/limits.d/pyrdma.conf").read_text()
        assert "\nroot - memlock unlimited\n" in limits

    for words in ((), ("--check",)):
        set_up = files_of(hosts)
        done = play("site.yml", inventory, *words)
        assert done.status == 0, done.text
        assert set(done.changed.values()) == {0}, done.text
        assert files_of(hosts) == set_up

    done = play("clean.yml", inventory, "--check")
    assert done.status == 0, done.text
    assert files_of(hosts) == set_up, "--check removes nothing"
    done = play("clean.yml", inventory)
    assert done.status == 0, done.text
    assert files_of(hosts) == before
    done = play("clean.yml", inventory)
    assert set(done.changed.values()) == {0}, done.text


def device(**changes: Any) -> dict[str, Any]:
    """Return a device of `pyrdma devices --json`."""
    return {
        "device": "mlx5_0",
        "port": 1,
        "gid_index": 3,
        "address": "10.10.1.1",
        "gid": "::ffff:10.10.1.1",
        "active": True,
        "login": False,
        **changes,
    }


def describe(host: Any, *entries: dict[str, Any], chosen: bool = True) -> None:
    """Write what `pyrdma devices --json` says on a host."""
    first = {key: entries[0][key] for key in ("device", "port", "gid_index")} if chosen else None
    document = {"devices": entries, "chosen": first, "reason": "as the test says"}
    (host.root / "etc/pyrdma-devices.json").write_text(json.dumps(document))


@needs_hosts
@pytest.mark.slow
def test_each_bad_host_is_named_with_its_remedy(play: Play, tmp_path: Path) -> None:
    with Hosts(8, disk="24m") as hosts:
        of_host: dict[str, dict[str, Any]] = {
            "node-0": {"ansible_user": "plain"},
            "node-1": {"pyrdma_python": "python3.99"},
            "node-2": {},
            "node-3": {},
            "node-4": {"ansible_ssh_common_args": "-o UserKnownHostsFile=/dev/null"},
            "node-5": {"pyrdma_packages": ["pyrdma-no-package"]},
            "node-6": {"pyrdma_modules": ["pyrdma_no_module"]},
            "node-7": {"pyrdma_address": "10.10.1.1"},
        }
        hosts[0].run("useradd", "--create-home", "plain")
        for host in hosts:
            describe(host, device(address=host.address))
        describe(hosts[3], device(address="10.10.1.9", active=False))
        describe(hosts[7], device())
        hosts[2].run("sh", "-c", "head -c 50M /dev/zero >/var/full || true")
        inventory = inventory_of(
            hosts, tmp_path, of_host, pyrdma_check_device=True, pyrdma_huge_pages=0
        )
        done = play("site.yml", inventory)
        assert done.status != 0
        words = {
            "node-0": ("sudo", "plain", "--ask-become-pass"),
            "node-1": ("python3.99", "pyrdma_python"),
            "node-2": ("10", "/opt"),
            "node-3": ("no link", "10.10.1.9", hosts[3].address, "pyrdma_device", "mlx5_0"),
            "node-4": ("Host key verification failed",),
            "node-5": ("pyrdma-no-package", "apt-get"),
            "node-6": ("pyrdma_no_module", "pyrdma_modules"),
        }
        assert {name for name, count in done.failed.items() if count} == {*words}, done.text
        for name, named in words.items():
            text = done.error_of(name)
            assert unnamed(text, *named) == [], text
            assert name in text or name == "node-4", text

        # A disk that fills while a release is unpacked leaves no half of one.
        inventory = inventory_of(hosts, tmp_path, pyrdma_release_mb=0, pyrdma_huge_pages=0)
        done = play("site.yml", inventory, "--limit", "node-2")
        assert done.failed == {"node-2": 1}, done.text
        assert unnamed(done.error_of("node-2"), "node-2", "No space left on device") == []
        assert not (hosts[2].root / "opt/pyrdma/current").exists()
        hosts[2].run("rm", "/var/full")
        done = play("site.yml", inventory, "--limit", "node-2")
        assert done.status == 0, done.text


@needs_hosts
@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("PYRDMA_DEPLOY") != "1", reason="sh tests/run.sh deploy runs it")
def test_a_new_release_takes_the_place_of_the_old_one(
    play: Play, hosts: Hosts, tmp_path: Path
) -> None:
    inventory = inventory_of(hosts, tmp_path, pyrdma_huge_pages=0)
    command = inventory.read_text()
    assert play("site.yml", inventory).status == 0
    first = hosts[1].run("readlink", "/opt/pyrdma/current").stdout
    inventory.write_text(command.replace("- one\n", "- two\n"))
    done = play("site.yml", inventory)
    assert set(done.changed.values()) == {2}, done.text
    second = hosts[1].run("readlink", "/opt/pyrdma/current").stdout
    assert first != second
    assert hosts[1].run("cat", "/opt/pyrdma/current/text").stdout.endswith(" two\n")
    inventory.write_text(command)
    done = play("site.yml", inventory)
    assert set(done.changed.values()) == {1}, "the old release is still there"
    assert hosts[1].run("readlink", "/opt/pyrdma/current").stdout == first
