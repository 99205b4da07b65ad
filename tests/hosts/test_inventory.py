"""Inventories: what pyrdma takes of Ansible's format, and what it refuses with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrdma.errors import InvalidArgument
from pyrdma.hosts.inventory import DEFAULT_COMMAND, Inventory
from tests.errors import raises


def load(tmp_path: Path, text: str) -> Inventory:
    file = tmp_path / "hosts.yml"
    file.write_text(text)
    return Inventory.load(file)


TWO = """
all:
  vars:
    ansible_user: me
    pyrdma_testbed: apt
  hosts:
    node-0: {ansible_host: apt1.example.org, pyrdma_address: 10.10.1.1}
    node-1:
      ansible_host: apt2.example.org
      ansible_port: 2222
      ansible_ssh_private_key_file: ~/.ssh/id
      ansible_ssh_common_args: -o "ProxyJump=gate way"
      pyrdma_address: 10.10.1.2
      pyrdma_device: mlx5_1:1:3
      pyrdma_slots: 4
"""


def test_what_a_host_has(tmp_path: Path) -> None:
    found = load(tmp_path, TWO)
    assert found.testbed == "apt"
    first, second = found.hosts
    assert (first.name, first.host, first.port, first.user) == (
        "node-0",
        "apt1.example.org",
        0,
        "me",
    )
    assert (first.connection, first.command, first.slots) == ("ssh", DEFAULT_COMMAND, 1)
    assert (first.address, first.wish.device) == ("10.10.1.1", "")
    assert (second.port, second.key, second.slots) == (2222, "~/.ssh/id", 4)
    assert second.arguments == ("-o", "ProxyJump=gate way")
    wish = second.wish
    assert (wish.device, wish.port, wish.gid_index, wish.address) == ("mlx5_1", 1, 3, "10.10.1.2")
    assert found.slots == 5


def test_groups_ranges_and_precedence(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """
all:
  vars: {pyrdma_slots: 1, ansible_user: everyone}
  children:
    servers:
      vars: {pyrdma_slots: 2}
      hosts:
        s[08:10]: {}
      children:
        big:
          vars: {pyrdma_slots: 8}
          hosts: {s09: }
clients:
  hosts:
    c[1:5:2]: {ansible_user: own}
""",
    )
    slots = {h.name: h.slots for h in found.hosts}
    assert slots == {"s08": 2, "s09": 8, "s10": 2, "c1": 1, "c3": 1, "c5": 1}
    users = {h.name: h.user for h in found.hosts}
    assert users["s08"] == "everyone"
    assert users["c3"] == "own"
    assert [h.name for h in found.select("big").hosts] == ["s09"]
    assert [h.name for h in found.select("!servers").hosts] == ["c1", "c3", "c5"]
    assert [h.name for h in found.select("s*,c1,!s08").hosts] == ["s09", "s10", "c1"]
    assert found.select(None) is found
    assert found.testbed == "hosts", "the file's name"


def test_a_local_host_runs_this_program(tmp_path: Path) -> None:
    host = load(tmp_path, "all: {hosts: {here: {ansible_connection: local}}}").hosts[0]
    assert (host.connection, host.command) == ("local", "")


def test_a_daemon_that_listens(tmp_path: Path) -> None:
    text = "all: {hosts: {a: {pyrdma_listen: '10.1.1.1:7471', pyrdma_token_file: /x}}}"
    host = load(tmp_path, text).hosts[0]
    assert (host.connection, host.listen) == ("listen", "10.1.1.1:7471")
    [host] = load(tmp_path, text.replace(", pyrdma_token_file: /x", "")).hosts
    assert host.connection == "ssh", "only a driver with the token can use the daemon"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "all: {hosts: {a: {ansible_host: '{{ x }}'}}}",
            ["a", "ansible_host", "ansible-inventory"],
        ),
        ("all: {hosts: {a: {ansible_user: !vault abc}}}", ["line 1", "ansible-inventory"]),
        ("all: {hosts: {a: {ansible_user: '$ANSIBLE_VAULT;1'}}}", ["a", "ansible-inventory"]),
        ("all: {hosts: {a: {ansible_user: '-oProxyCommand=x'}}}", ["a", "ansible_user"]),
        ("all: {hosts: {a: {ansible_host: '-oProxyCommand=x'}}}", ["a", "ansible_host"]),
        ("all: {hosts: {'-a': {}}}", ["-a", "name"]),
        ("all: {hosts: {a: {ansible_port: 70000}}}", ["ansible_port", 70000, 65535]),
        ("all: {hosts: {a: {pyrdma_slots: 0}}}", ["pyrdma_slots", 1, 256]),
        ("all: {hosts: {a: {pyrdma_slots: true}}}", ["pyrdma_slots"]),
        ("all: {hosts: {a: {pyrdma_address: 10.1}}}", ["pyrdma_address", "10.1"]),
        ("all: {hosts: {a: {pyrdma_device: 'mlx5_0:999'}}}", ["a", "255"]),
        ("all: {hosts: {a: {ansible_connection: docker}}}", ["docker", "ssh", "local"]),
        ("all: {hosts: {a: {pyrdma_listen: '7471', pyrdma_token_file: x}}}", ["ADDRESS:PORT"]),
        ("all: {hosts: {a: {pyrdma_testbed: ../x}}}", ["pyrdma_testbed", "../x"]),
        ("all: {hosts: {a: {pyrdma_testbed: x}, b: {pyrdma_testbed: y}}}", ["x, y"]),
        ("all: {hosts: {a: {ansible_ssh_common_args: '\"'}}}", ["a", "quotation"]),
        ("all: {hosts: {'a[0:99999]': {}}}", ["[0:99999]", 4096]),
        ("all: {hosts: {'a[3:1]': {}}}", ["[3:1]"]),
        ("all: {hosts: [a, b]}", ["all", "mapping"]),
        ("all: {host: {a: {}}}", ["host", "children"]),
        ("all: {children: {a: {children: {a: {}}}}}", ["own child"]),
        ("all:", ["no hosts"]),
        ("[1, 2]", ["mapping"]),
        ("a: b: c", ["YAML"]),
        ("x" * (2 << 20), [1 << 20]),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: list[object]) -> None:
    with raises(InvalidArgument, *said):
        load(tmp_path, text)


def test_a_missing_file_and_unknown_hosts(tmp_path: Path) -> None:
    with raises(InvalidArgument, "nothing.yml"):
        Inventory.load(tmp_path / "nothing.yml")
    found = load(tmp_path, TWO)
    with raises(InvalidArgument, "node-7", "node-0, node-1"):
        found.select("node-7")
    with raises(InvalidArgument, "no host"):
        found.select("!node-*")
