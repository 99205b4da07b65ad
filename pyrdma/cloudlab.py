"""Ansible inventories of CloudLab experiments, from their GENI manifests (RSpec 3).

A manifest comes from outside. Its size, depth and number of elements are bounded, it has no DTD,
and each value that enters an inventory has been checked.
"""

from __future__ import annotations

import ipaddress
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arguments import FilePath, checked, shown
from .errors import Error, InvalidArgument
from .files import read_regular

__all__ = ["Inventory", "inventory"]

MOST_BYTES = 8 << 20
"""A manifest of 160 nodes with 19 members each has 0.4 MB."""
MOST_DEPTH = 32
MOST_ELEMENTS = 200_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
_LOGIN_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_PORT = re.compile(r"[0-9]{1,5}")
_NO_HOSTS = ("emulab-blockstore", "delay")
"""Types of nodes that nobody can log in to: remote disks, and bridges that shape traffic."""
_GROUPS = ("all", "ungrouped")
"""Names that Ansible's inventories reserve for groups."""


@dataclass(frozen=True)
class Inventory:
    """Hosts of an experiment for Ansible and for pyrdma.

    Attributes
    ----------
    hosts : dict
        Variables of each host by its name, in the order of the names.
    user : str
        The member of the project who logs in.
    lan : str
        The LAN of the addresses; empty if the experiment has none.
    testbed : str
        Name of the testbed, for the folders of results.
    notes : tuple of str
        Sentences for the user: the choice of the LAN, what was left out, what a host lacks.
    """

    hosts: Mapping[str, Mapping[str, str | int]]
    user: str
    lan: str
    testbed: str
    notes: tuple[str, ...]

    def yaml(self) -> str:
        """Return the inventory in Ansible's YAML."""
        import yaml

        hosts = {name: dict(sorted(found.items())) for name, found in self.hosts.items()}
        document = {"all": {"hosts": hosts}}
        return yaml.safe_dump(document, sort_keys=False, default_flow_style=False)


@checked
def inventory(manifest: FilePath, user: str = "", lan: str = "", testbed: str = "") -> Inventory:
    """Return the inventory of a CloudLab experiment.

    Parameters
    ----------
    manifest
        File of the experiment's manifest.
    user
        The member of the project who logs in; empty: the only one.
    lan
        The LAN whose addresses the experiment uses; empty: the one that joins the most hosts.
    testbed
        Name of the testbed; empty: site and hardware type, such as ``utah-xl170``.

    Raises
    ------
    InvalidArgument
        The file is no manifest, a value in it is out of its bounds, or an argument names nothing
        in it.
    Error
        The file cannot be read, or nobody can log in yet.
    """
    path = Path(manifest)
    try:
        content = read_regular(path.resolve(), MOST_BYTES)
    except (OSError, RuntimeError) as error:  # RuntimeError: a link to itself
        reason = getattr(error, "strerror", error)
        raise Error(f"cannot read the manifest {path}: {reason}") from error
    except ValueError as error:
        raise InvalidArgument(f"{path} is no manifest: {error}") from error
    try:
        return read_manifest(content, user, lan, testbed)
    except Error as error:
        raise type(error)(f"{path}: {error}") from error


def read_manifest(content: bytes, user: str = "", lan: str = "", testbed: str = "") -> Inventory:
    """Return the inventory of a manifest that has been read; see `inventory`."""
    root = _parse(content)
    every = [_Node(element) for element in _children(root, "node")]
    left_out = [node for node in every if node.kind in _NO_HOSTS]
    nodes = [node for node in every if node.kind not in _NO_HOSTS]
    if not nodes:
        raise InvalidArgument("the manifest has no node to log in to; download that of another")
    nodes.sort(key=lambda node: _natural(node.name))
    names = Counter(node.name for node in nodes)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidArgument(f"two nodes have the client_id {twice[0]}; rename one")
    user = _choose_user(nodes, user)
    lan, notes = _choose_lan(root, nodes, lan)
    testbed = testbed or "-".join((*_all_of("site", nodes), *_all_of("hardware", nodes)))
    if not _NAME.fullmatch(testbed):
        raise InvalidArgument(
            f"the name of the testbed would be {shown(testbed)}; give one of at most 63 letters, "
            "digits and . _ - with --testbed"
        )
    hosts = {node.name: _variables(node, user, testbed) for node in nodes}
    notes += [
        f"{node.name} is a virtual machine on {node.machine or 'a shared node'}: its NIC is "
        "virtual, without RDMA"
        for node in nodes
        if node.virtual
    ]
    notes += [
        f"{node.name} is left out: a node of type {node.kind} is no host" for node in left_out
    ]
    return Inventory(hosts, user, lan, testbed, tuple(notes))


# ---- XML ----


class _Bounded(ET.TreeBuilder):
    """Builds the tree of a document whose depth and number of elements are bounded."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = self._elements = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ET.Element:
        self._depth += 1
        self._elements += 1
        if self._depth > MOST_DEPTH:
            raise InvalidArgument(f"no manifest: its elements nest more than {MOST_DEPTH} deep")
        if self._elements > MOST_ELEMENTS:
            raise InvalidArgument(f"no manifest: it has more than {MOST_ELEMENTS} elements")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ET.Element:
        self._depth -= 1
        return super().end(tag)


def _parse(content: bytes) -> ET.Element:
    if len(content) > MOST_BYTES:
        raise InvalidArgument(f"no manifest: {len(content)} bytes, at most {MOST_BYTES}")
    try:
        text = content.decode("utf-8-sig").lstrip()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"no manifest: byte {error.start} is not UTF-8") from error
    # Without a DTD there are no entities, which could name files and grow without bound. The text
    # is searched, because the parser would go through the DTD before it hands on our exception.
    if "<!DOCTYPE" in text:
        raise InvalidArgument("no manifest: it has a DTD (<!DOCTYPE); remove it")
    parser = ET.XMLParser(target=_Bounded())
    try:
        # A text, other than bytes, is in no encoding that the document could choose.
        parser.feed(text)
        root: ET.Element = parser.close()
    except ET.ParseError as error:
        raise InvalidArgument(f"no manifest: not well-formed XML: {error}") from error
    if _local(root) != "rspec":
        raise InvalidArgument(f"no manifest: it begins with {shown(_local(root))}, not with rspec")
    return root


def _local(element: ET.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rsplit("}", 1)[-1]


def _children(element: ET.Element, name: str) -> list[ET.Element]:
    return [child for child in element if _local(child) == name]


def _attribute(element: ET.Element, child: str, name: str) -> str:
    """Return an attribute of the first child of this name; empty if there is none."""
    return next((found.get(name, "") for found in _children(element, child)), "")


# ---- nodes ----


def _word(what: str, value: str, pattern: re.Pattern[str], takes: str) -> str:
    if not pattern.fullmatch(value):
        raise InvalidArgument(f"{what} is {shown(value)}; a manifest has {takes} there")
    return value


def _name(what: str, value: str) -> str:
    return _word(what, value, _NAME, "at most 63 letters, digits and . _ -")


class _Node:
    """A node of the manifest, checked but for its logins."""

    def __init__(self, element: ET.Element) -> None:
        self.name = _name("the client_id of a node", element.get("client_id", ""))
        if self.name in _GROUPS:
            raise InvalidArgument(f"a node is named {self.name}, as Ansible's group; rename it")
        self.kind = _attribute(element, "sliver_type", "name")
        hardware = _attribute(element, "vnode", "hardware_type") or _attribute(
            element, "hardware_type", "name"
        )
        # The component is the physical machine, which several virtual ones can share.
        component = _last(element.get("component_id", ""))
        machine = component or _attribute(element, "vnode", "name")
        site = _last(element.get("component_manager_id", ""), 2).split(".")[0]
        self.hardware = hardware and _name(f"the hardware type of {self.name}", hardware)
        self.machine = machine and _name(f"the machine of {self.name}", machine)
        self.site = site and _name(f"the site of {self.name}", site)
        self.virtual = hardware.startswith("pcvm") or element.get("exclusive") == "false"
        self.address = ""
        self.interfaces = _children(element, "interface")
        self.logins: dict[str, ET.Element] = {}
        for services in _children(element, "services"):
            for login in _children(services, "login"):
                if login.get("authentication", "ssh-keys") != "ssh-keys":
                    continue
                if _USER.fullmatch(member := login.get("username", "")):
                    self.logins.setdefault(member, login)


def _last(urn: str, nth: int = 0) -> str:
    """Return the last word of ``urn:publicid:IDN+SITE+KIND+NAME``, or the `nth` before it."""
    words = urn.split("+")
    return words[-1 - nth] if len(words) == 4 else ""


def _address(node: str, value: str) -> str:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        address = None
    if (
        address is None
        or "%" in value
        or address.is_loopback
        or address.is_multicast
        or address.is_unspecified
    ):
        raise InvalidArgument(f"{node} has the address {shown(value)}; give a host's IP address")
    return str(address)


def _variables(node: _Node, user: str, testbed: str) -> dict[str, str | int]:
    login = node.logins[user]
    what = f"the login host of {node.name}"
    host = _word(what, login.get("hostname", ""), _LOGIN_HOST, "the name of a host")
    port = _word(f"the port of {node.name}", login.get("port", "22"), _PORT, "1 to 65535")
    if not 1 <= int(port) <= 65535:
        raise InvalidArgument(f"the port of {node.name} is {port}; ports are from 1 to 65535")
    found: dict[str, str | int] = {
        "ansible_host": host,
        "ansible_port": int(port),
        "ansible_user": user,
        "pyrdma_testbed": testbed,
    }
    for variable in ("address", "hardware", "machine"):
        if value := getattr(node, variable):
            found[f"pyrdma_{variable}"] = value
    return found


# ---- choices ----


def _choose_user(nodes: Sequence[_Node], wish: str) -> str:
    waiting = [node.name for node in nodes if not node.logins]
    if waiting:
        raise Error(
            f"nobody can log in to {_list(waiting)} yet: the experiment is still starting, or this "
            "is a request and not a manifest; wait until CloudLab shows the experiment as ready, "
            "and download its manifest again"
        )
    members = sorted({member for node in nodes for member in node.logins})
    if not wish and len(members) > 1:
        raise InvalidArgument(
            f"{len(members)} members of the project can log in; give yours with --user: "
            f"{_list(members)}"
        )
    user = wish or members[0]
    lacking = [node.name for node in nodes if user not in node.logins]
    if lacking:
        raise InvalidArgument(
            f"{shown(user)} cannot log in to {_list(lacking)}; give another --user: "
            f"{_list(members)}"
        )
    return user


def _choose_lan(root: ET.Element, nodes: Sequence[_Node], wish: str) -> tuple[str, list[str]]:
    """Give the nodes their addresses in one LAN; return its name, and notes."""
    owners = _owners_of_interfaces(nodes)
    found: dict[str, dict[str, str]] = {}
    for link in _children(root, "link"):
        name = _name("the client_id of a link", link.get("client_id", ""))
        addresses: dict[str, str] = {}
        for reference in _children(link, "interface_ref"):
            if owner := owners.get(reference.get("client_id", "")):
                addresses.setdefault(*owner)
        if addresses:
            found.setdefault(name, addresses)
    if wish and wish not in found:
        raise InvalidArgument(
            f"no host has an address in the LAN {shown(wish)}; give another --lan: "
            f"{_list(found) or 'there is none'}"
        )
    if not found:
        return "", ["no host has an address in a LAN: only --fabric shm can run"]
    most = max(len(addresses) for addresses in found.values())
    largest = [name for name, addresses in found.items() if len(addresses) == most]
    lan = wish or largest[0]
    notes = []
    if len(found) > 1 and not wish:
        reason = f"it joins the most hosts, {most}"
        if len(largest) > 1:
            reason = f"{_list(largest)} join {most} hosts each, and it is the first"
        notes.append(f"LAN {lan} of {_list(found)}: {reason}; --lan chooses another")
    users: dict[str, str] = {}
    for node in nodes:
        node.address = found[lan].get(node.name, "")
        if not node.address:
            notes.append(
                f"{node.name} has no address in the LAN {lan}: it can run --fabric shm alone; "
                f"--hosts '!{node.name}' leaves it out"
            )
        elif (other := users.setdefault(node.address, node.name)) != node.name:
            raise InvalidArgument(
                f"{other} and {node.name} both have the address {node.address} in {lan}; give "
                "another --lan, or each node its own address"
            )
    return lan, notes


def _owners_of_interfaces(nodes: Iterable[_Node]) -> dict[str, tuple[str, str]]:
    """Return the node, and the node's address there, of each interface that has an address."""
    owners: dict[str, tuple[str, str]] = {}
    for node in nodes:
        for interface in node.interfaces:
            name = interface.get("client_id", "")
            address = _attribute(interface, "ip", "address")
            if not address:
                continue
            if name in owners:
                raise InvalidArgument(
                    f"two interfaces, of {owners[name][0]} and {node.name}, have the client_id "
                    f"{shown(name)}; rename one"
                )
            owners[name] = (node.name, _address(node.name, address))
    return owners


def _all_of(attribute: str, nodes: Iterable[_Node]) -> list[str]:
    return sorted({getattr(node, attribute) for node in nodes} - {""})


def _list(names: Iterable[str], most: int = 20) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _natural(name: str) -> list[Any]:
    """Return a key by which node-2 precedes node-10."""
    return [int(part) if part.isdigit() else part for part in re.split("([0-9]+)", name)]
