"""A manifest becomes an Ansible inventory, or an error that says what to change in it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrdma import cloudlab
from pyrdma.cloudlab import MOST_BYTES, MOST_DEPTH, MOST_ELEMENTS, Inventory, inventory
from pyrdma.errors import Error, InvalidArgument
from tests.errors import raises, unnamed
from tests.harness.support import pyrdma

MANIFESTS = Path(__file__).parent / "manifests"


def of(name: str, **options: str) -> Inventory:
    return inventory(MANIFESTS / f"{name}.xml", **options)


def changed(name: str, *pairs: tuple[str, str]) -> bytes:
    """Return a manifest in which each first text is replaced by its second wherever it stands."""
    text = (MANIFESTS / f"{name}.xml").read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text.encode()


def read(content: bytes) -> Inventory:
    return cloudlab.read_manifest(content, "ada")


# ---- the shapes that manifests have ----


@pytest.mark.parametrize(
    ("name", "hosts", "lan", "testbed"),
    [
        ("xl170", [f"node-{n}" for n in range(11)], "lan", "utah-xl170"),
        ("c6525-25g", ["node0", "node1"], "lan0", "utah-c6525-25g"),
        ("r650", [f"node-{n}" for n in range(4)], "rdma", "clemson-r650"),
        ("r320", ["client", "gateway", "server"], "rdma", "apt-r320"),
        ("vm", ["left", "right"], "link-0", "wisc-pcvm"),
        ("two_lans", ["node-0", "node-1", "node-2"], "fast", "clemson-r650-r6525"),
    ],
)
def test_a_manifest_becomes_an_inventory(
    name: str, hosts: list[str], lan: str, testbed: str
) -> None:
    found = of(name, user="ada")
    assert list(found.hosts) == hosts
    assert (found.user, found.lan, found.testbed) == ("ada", lan, testbed)
    assert yaml.safe_load(found.yaml()) == {"all": {"hosts": found.hosts}}


def test_a_host_has_the_login_of_its_member() -> None:
    found = of("xl170", user="grace")
    assert found.hosts["node-10"] == {
        "ansible_host": "hp910.utah.cloudlab.us",
        "ansible_port": 22,
        "ansible_user": "grace",
        "pyrdma_address": "10.10.1.11",
        "pyrdma_hardware": "xl170",
        "pyrdma_machine": "hp910",
        "pyrdma_testbed": "utah-xl170",
    }
    assert found.notes == ()


def test_a_prefix_of_the_namespace_makes_no_difference() -> None:
    plain = changed("c6525-25g", ("geni:", ""), ("xmlns:geni", "xmlns"), ("rs:", "other:"))
    plain = plain.replace(b"xmlns:rs=", b"xmlns:other=")
    assert read(plain) == of("c6525-25g", user="ada")
    bare = changed("r650", (' xmlns="http://www.geni.net/resources/rspec/3"', ""))
    assert read(bare) == of("r650")


def test_the_only_member_needs_no_name() -> None:
    assert of("r650").user == "ada"
    with raises(InvalidArgument, "c6525-25g.xml", 3, "--user", "ada", "grace", "barbara"):
        of("c6525-25g")
    with raises(InvalidArgument, "grce", "grace", "node-0"):
        of("xl170", user="grce")


def test_a_member_who_cannot_log_in_everywhere_is_refused() -> None:
    first = '<login authentication="ssh-keys" hostname="apt900.apt.emulab.net" port="22" '
    lost = changed("r320", (f'{first}username="ada"/>', ""))
    with raises(InvalidArgument, "ada", "server", "grace"):
        read(lost)
    assert unnamed(cloudlab.read_manifest(lost, "grace").user, "grace") == []


def test_a_login_by_password_does_not_count() -> None:
    with raises(Error, "left", "right"):
        read(changed("vm", ('"ssh-keys"', '"password"')))


def test_the_choice_among_two_lans_is_told() -> None:
    found = of("two_lans", user="ada")
    [note] = found.notes
    assert unnamed(note, "fast", "slow", 3, "--lan") == []
    assert [host["pyrdma_address"] for host in found.hosts.values()] == [
        "10.10.2.1",
        "10.10.2.2",
        "10.10.2.3",
    ]


def test_of_two_lans_of_one_size_the_first_is_taken() -> None:
    first = changed("two_lans", ('<interface_ref client_id="node-2:if1"/>', ""))
    found = read(first)
    assert found.lan == "slow"
    assert unnamed(" ".join(found.notes), "slow", "fast", 2, "node-2") == []


def test_a_lan_can_be_chosen_and_a_node_outside_it_is_told() -> None:
    found = of("two_lans", user="ada", lan="slow")
    assert found.hosts["node-0"]["pyrdma_address"] == "10.10.1.1"
    assert "pyrdma_address" not in found.hosts["node-2"]
    [note] = found.notes
    assert unnamed(note, "node-2", "slow") == []
    with raises(InvalidArgument, "fasst", "fast", "slow"):
        of("two_lans", user="ada", lan="fasst")


def test_a_node_without_an_address_is_told() -> None:
    [note] = of("r320", user="ada").notes
    assert unnamed(note, "gateway", "rdma", "shm") == []


def test_without_a_lan_only_shm_remains() -> None:
    found = read(changed("vm", ("<link ", "<link_ "), ("</link>", "</link_>")))
    assert found.lan == ""
    assert unnamed(found.notes[0], "shm") == []
    with raises(InvalidArgument, "left"):
        cloudlab.read_manifest(changed("vm", ("<link ", "<a "), ("</link>", "</a>")), lan="left")


def test_a_virtual_machine_is_told() -> None:
    found = of("vm")
    left, right = found.notes
    assert unnamed(left, "left", "pc9") == unnamed(right, "right", "pc9") == []
    assert found.hosts["left"]["pyrdma_machine"] == "pc9"
    dedicated = changed("vm", ('exclusive="false"', 'exclusive="true"'))
    shared = changed("vm", ('"pcvm"', '"d430"'))
    assert read(dedicated).notes == read(shared).notes == found.notes
    assert read(changed("vm", ('exclusive="false"', ""), ('"pcvm"', '"d430"'))).notes == ()
    assert (found.hosts["left"]["ansible_port"], found.hosts["right"]["ansible_port"]) == (
        31038,
        31039,
    )


def test_a_remote_disk_is_no_host() -> None:
    [note] = of("r650").notes
    assert unnamed(note, "storage", "emulab-blockstore") == []


def test_an_experiment_that_is_starting_has_no_logins() -> None:
    with raises(Error, "starting.xml", "node-0", "node-1") as caught:
        of("starting", user="ada")
    assert not isinstance(caught.value, InvalidArgument)


def test_a_testbed_can_be_named() -> None:
    found = of("r650", testbed="rack-7")
    assert {host["pyrdma_testbed"] for host in found.hosts.values()} == {"rack-7"}
    with raises(InvalidArgument, "../x", "--testbed"):
        of("r650", testbed="../x")
    with raises(InvalidArgument, "--testbed"):
        read(changed("r650", ('hardware_type="r650"', ""), ('<hardware_type name="r650"/>', ""),
             ("component_manager_id", "other")))  # fmt: skip


# ---- values from outside ----


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ('client_id="server"', 'client_id="-oProxyCommand=x"', ["-oProxyCommand=x", 63]),
        ('client_id="server"', 'client_id=""', ["''"]),
        ('client_id="server"', 'client_id="all"', ["all"]),
        ('client_id="server"', 'client_id="client"', ["client"]),
        ('client_id="server"', 'client_id="node[1:9]"', ["node[1:9]"]),
        ('client_id="server"', 'client_id="s&#10;x: y"', ["y"]),
        ('client_id="server"', f'client_id="{"s" * 64}"', [63]),
        ("apt900.apt.emulab.net", "-oProxyCommand=x", ["-oProxyCommand=x", "server"]),
        ("apt900.apt.emulab.net", "{{ lookup('pipe', 'x') }}", ["server"]),
        ("apt900.apt.emulab.net", "a" * 254, ["server"]),
        ('apt900.apt.emulab.net" port="22"', 'a" port="0"', [0, 65535, "server"]),
        ('apt900.apt.emulab.net" port="22"', 'a" port="65536"', [65536, 65535, "server"]),
        ('apt900.apt.emulab.net" port="22"', 'a" port="٢٢"', ["server", 65535]),
        ('apt900.apt.emulab.net" port="22"', 'a" port="22 "', ["server", 65535]),
        ('address="10.10.1.1"', 'address="10.10.1"', ["10.10.1", "server"]),
        ('address="10.10.1.1"', 'address="127.0.0.1"', ["127.0.0.1", "server"]),
        ('address="10.10.1.1"', 'address="224.0.0.1"', ["224.0.0.1", "server"]),
        ('address="10.10.1.1"', 'address="0.0.0.0"', ["0.0.0.0", "server"]),
        ('address="10.10.1.1"', 'address="fe80::1%{{x}}"', ["server"]),
        ('address="10.10.1.1"', 'address="10.10.1.2"', ["10.10.1.2", "server", "client", "rdma"]),
        ('hardware_type="r320"', 'hardware_type="{{ x }}"', ["{{ x }}"]),
        ("node+apt900", "node+a b", ["a b", "server"]),
        ("apt.emulab.net+authority", "{{x}}+authority", ["{{x}}"]),
        ('client_id="rdma"', 'client_id="{{x}}"', ["{{x}}"]),
        ('client_id="client:if0"', 'client_id="server:if0"', ["server:if0", "server", "client"]),
    ],
)
def test_a_value_out_of_its_bounds_is_named(old: str, new: str, values: list[object]) -> None:
    with raises(InvalidArgument, *values):
        read(changed("r320", (old, new)))


def test_logins_of_strange_names_are_passed_over() -> None:
    strange = changed("r320", ('username="grace"', 'username="-oProxyCommand=x"'))
    assert read(strange) == of("r320", user="ada")
    with raises(InvalidArgument, "-oProxyCommand=x", "ada"):
        cloudlab.read_manifest(strange, "-oProxyCommand=x")


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 20 if n else "ha" * 50}">' for n in range(12))
DTDS = [
    f"<!DOCTYPE rspec [{LAUGHS}]><rspec>&l11;</rspec>",
    '<!DOCTYPE rspec [<!ENTITY f SYSTEM "file:///etc/hostname">]><rspec a="&f;">&f;</rspec>',
    '<!DOCTYPE rspec SYSTEM "http://localhost:1/a.dtd"><rspec/>',
]


@pytest.mark.parametrize("document", DTDS, ids=["laughs", "file", "address"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-7"])
def test_a_dtd_is_refused_at_once(document: str, encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding}"?>'
    began = time.monotonic()
    for text in (document, declared + document):
        with raises(InvalidArgument, *(["<!DOCTYPE"] if encoding.startswith("utf-8") else [])):
            cloudlab.read_manifest(text.encode(encoding))
    assert time.monotonic() - began < 1


def test_an_entity_gives_no_value() -> None:
    entity = ('client_id="left"', 'client_id="&left;"')
    with raises(InvalidArgument, "<!DOCTYPE"):
        read(b'<!DOCTYPE rspec [<!ENTITY left "left">]>' + changed("vm", entity))


def test_what_stands_before_a_manifest_makes_no_difference() -> None:
    for before in (b"\n ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"):
        assert read(before + changed("c6525-25g")) == of("c6525-25g", user="ada")


@pytest.mark.parametrize(
    ("content", "values"),
    [
        (b"", []),
        (b"\xff\xfe", [0]),
        (b"<html><body/></html>", ["html", "rspec"]),
        (b"<rspec>", []),
        (b"<rspec/>", []),
        (b"<rspec>&amp;&later;</rspec>", []),
        (b"<rspec>" + b"<a>" * MOST_DEPTH + b"</a>" * MOST_DEPTH + b"</rspec>", [MOST_DEPTH]),
        (b"<rspec>" + b"<a/>" * MOST_ELEMENTS + b"</rspec>", [MOST_ELEMENTS]),
        (b"<" * (MOST_BYTES + 1), [MOST_BYTES]),
    ],
    ids=["empty", "bytes", "page", "cut", "no node", "entity", "deep", "many", "long"],
)
def test_what_is_no_manifest_is_named(content: bytes, values: list[object]) -> None:
    with raises(InvalidArgument, *values):
        cloudlab.read_manifest(content)


def test_a_deep_manifest_within_the_bound_is_read() -> None:
    deep = b"<a>" * (MOST_DEPTH - 1) + b"</a>" * (MOST_DEPTH - 1)
    assert read(changed("r650").replace(b"</rspec>", deep + b"</rspec>")) == of("r650")


def test_a_manifest_of_a_large_experiment_is_read_quickly() -> None:
    text = changed("xl170").decode()
    start, end = text.index("  <node "), text.index("  <link ")
    block = text[start : text.index("</node>") + 8]
    nodes = "".join(
        block.replace("node-0", f"node-{n}").replace("10.10.1.1", f"10.10.{n // 200}.{n % 200 + 1}")
        for n in range(1000)
    )
    references = "".join(f'<interface_ref client_id="node-{n}:if1"/>' for n in range(1000))
    large = text[:start] + nodes + text[end:].replace("<interface_ref", references + "<other", 1)
    began = time.monotonic()
    found = read(large.encode())
    assert time.monotonic() - began < 5
    assert len({host["pyrdma_address"] for host in found.hosts.values()}) == 1000


def test_many_links_of_many_nodes_take_no_square_of_time() -> None:
    login = '<services><login hostname="a" username="ada"/></services>'
    nodes = "".join(
        f'<node client_id="n{n}">{login}<interface client_id="i{n}"><ip address="10.{n // 250}.'
        f'{n % 250}.1"/></interface></node>'
        for n in range(20_000)
    )
    links = "".join(
        f'<link client_id="l{n}"><interface_ref client_id="i{n}"/></link>' for n in range(40_000)
    )
    began = time.monotonic()
    with raises(InvalidArgument, "lost", "l0"):
        cloudlab.read_manifest(f"<rspec>{nodes}{links}</rspec>".encode(), lan="lost", testbed="t")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("kind", ["absent", "folder", "loop", "pipe", "long"])
def test_what_cannot_be_read_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "manifest.xml"
    if kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "long":
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    with raises(Error, path):
        inventory(path)


def test_a_manifest_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "manifest.xml").symlink_to(MANIFESTS / "vm.xml")
    assert inventory(tmp_path / "manifest.xml") == of("vm")


# ---- the command ----


def run(*words: object) -> Any:
    return pyrdma("inventory", *map(str, words))


def test_the_command_writes_what_made_the_file(tmp_path: Path) -> None:
    out = tmp_path / "hosts.yml"
    manifest = MANIFESTS / "two_lans.xml"
    done = run(manifest, "--user", "ada", "--out", out)
    assert (done.returncode, done.stdout) == (0, "")
    assert unnamed(done.stderr, "fast", "slow", out, 3, "clemson-r650-r6525") == []
    first, *_ = out.read_text().splitlines()
    options = ["--user", "ada", "--lan", "fast", "--testbed", "clemson-r650-r6525"]
    assert first.endswith(" ".join(["pyrdma", "inventory", str(manifest), *options]))
    assert first.startswith("#")
    again = run(manifest, *options)
    assert again.stdout == out.read_text()
    assert again.stderr == ""
    refused = run(manifest, "--user", "ada", "--out", out)
    assert refused.returncode == 2
    assert unnamed(refused.stderr, out) == []


def test_a_name_of_a_file_adds_no_line(tmp_path: Path) -> None:
    manifest = tmp_path / "a\nall: {}\n.xml"
    manifest.write_bytes((MANIFESTS / "vm.xml").read_bytes())
    done = run(manifest)
    assert yaml.safe_load(done.stdout) == {"all": {"hosts": of("vm").hosts}}


def test_the_command_tells_who_can_log_in() -> None:
    done = run(MANIFESTS / "r320.xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert unnamed(done.stderr, "r320.xml", "--user", "ada", "grace", "barbara") == []
    assert "Traceback" not in done.stderr
    assert run(MANIFESTS / "starting.xml").returncode == 1
