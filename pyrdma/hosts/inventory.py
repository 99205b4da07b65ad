"""An Ansible inventory in YAML: the hosts of a testbed, and how to reach each of them.

pyrdma reads the file itself, since Ansible is no dependency of a program that drives nodes. It
takes hosts, groups, children, variables and ranges (``node-[0:3]``) as Ansible does. It does not
evaluate templates, open vaults, or read the folders ``group_vars`` and ``host_vars``.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyrdma.arguments import FilePath, checked, shown
from pyrdma.devices import Wish
from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import read_regular
from pyrdma.places import NAME

__all__ = ["DEFAULT_COMMAND", "HostEntry", "Inventory"]

DEFAULT_COMMAND = "/opt/pyrdma/current/bin/pyrdma"
"""The program on a host that the playbooks have set up."""

_MOST_BYTES = 1 << 20
_MOST_HOSTS = 4096
_MOST_DEPTH = 32
_SLOTS = 256
_USER = re.compile(r"[A-Za-z0-9_][\w.@-]{0,63}", re.ASCII)
_RANGE = re.compile(r"\[(\d+):(\d+)(?::(\d+))?\]")


@dataclass(frozen=True)
class HostEntry:
    """A host of an inventory.

    Attributes
    ----------
    name
        The host's name in the inventory.
    connection
        ``ssh``, ``local`` (this machine), or ``listen`` (a daemon that listens at `listen`).
    host, port, user, key, arguments
        How OpenSSH reaches the host; `port` is 0 and the texts are empty where its settings decide.
    command
        The program ``pyrdma`` there; this interpreter's own if empty.
    wish
        The device that the nodes there use.
    slots
        Number of nodes that the host may hold.
    groups
        Names of the groups that have the host.
    """

    name: str
    connection: str = "ssh"
    host: str = ""
    port: int = 0
    user: str = ""
    key: str = ""
    arguments: Sequence[str] = ()
    command: str = DEFAULT_COMMAND
    wish: Wish = field(default_factory=Wish)
    slots: int = 1
    listen: str = ""
    token_file: str = ""
    groups: Sequence[str] = ()

    @property
    def address(self) -> str:
        """Address on the experiment network; empty if the inventory gives none."""
        return self.wish.address


@dataclass(frozen=True)
class Inventory:
    """The hosts of a testbed, in the order of the file.

    Attributes
    ----------
    testbed
        Name of the testbed, for the results' folder.
    """

    path: Path
    testbed: str
    hosts: Sequence[HostEntry]

    @classmethod
    @checked
    def load(cls, path: FilePath) -> Inventory:
        """Read an inventory.

        Raises
        ------
        InvalidArgument
            The file is no inventory, or a variable is wrong; the message names host and remedy.
        """
        file = Path(path)
        groups = _groups(file, _read(file))
        found: dict[str, dict[str, Any]] = {}
        members: dict[str, list[str]] = {}
        for group in _parents_first(file, groups):
            for name in _with_children(group, groups):
                for host in groups[name].hosts:
                    found.setdefault(host, {}).update(groups[group].variables)
                    members.setdefault(host, []).append(group)
        for entry in groups.values():  # the variables of a host win over those of its groups
            for host, own in entry.hosts.items():
                found[host].update(own)
        if not found:
            raise InvalidArgument(f"inventory {file}: it has no hosts; add some below all: hosts:")
        if len(found) > _MOST_HOSTS:
            raise InvalidArgument(
                f"inventory {file}: it has {len(found)} hosts; at most {_MOST_HOSTS} are allowed"
            )
        hosts = [_host(file, n, v, members[n]) for n, v in found.items()]
        testbeds = {_text(file, n, v, "pyrdma_testbed") for n, v in found.items()} - {""}
        if len(testbeds) > 1:
            raise InvalidArgument(
                f"inventory {file}: pyrdma_testbed differs between hosts: "
                f"{', '.join(sorted(testbeds))}; give all hosts one, or use two inventories"
            )
        return cls(file, testbeds.pop() if testbeds else _default_testbed(file), hosts)

    def select(self, pattern: str | None) -> Inventory:
        """Return the inventory with the hosts that `pattern` names.

        `pattern` has names of hosts or groups with ``*`` and ``?``, separated by commas; one that
        begins with ``!`` leaves hosts out.

        Raises
        ------
        InvalidArgument
            A word of the pattern names no host, or no host is left.
        """
        if pattern is None:
            return self
        words = [word.strip() for word in pattern.split(",") if word.strip()]
        kept: list[HostEntry] = []
        if not words or words[0].startswith("!"):
            kept = list(self.hosts)
        for word in words:
            name = word.removeprefix("!")
            chosen = [h for h in self.hosts if _fits(h, name)]
            if not chosen:
                known = ", ".join(h.name for h in self.hosts[:20])
                raise InvalidArgument(
                    f"hosts {shown(pattern)}: {shown(name)} is no host of {self.path}; it has "
                    + known
                )
            if word.startswith("!"):
                kept = [h for h in kept if h not in chosen]
            else:
                kept += [h for h in chosen if h not in kept]
        if not kept:
            raise InvalidArgument(f"hosts {shown(pattern)} leaves no host of {self.path}")
        order = {h.name: n for n, h in enumerate(self.hosts)}
        kept.sort(key=lambda h: order[h.name])
        return Inventory(self.path, self.testbed, kept)

    @property
    def slots(self) -> int:
        """Number of nodes that all hosts may hold together."""
        return sum(h.slots for h in self.hosts)


@dataclass
class _Group:
    hosts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)


def _read(file: Path) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses vaults."""

    def refuse(loader: Any, node: Any) -> Any:
        del loader
        raise InvalidArgument(
            f"inventory {file}: line {node.start_mark.line + 1} has a vault; " + _export(file)
        )

    Loader.add_constructor("!vault", refuse)
    Loader.add_constructor("!vault-encrypted", refuse)
    try:
        content = read_regular(file, _MOST_BYTES)
    except FileNotFoundError:
        raise InvalidArgument(f"inventory {file} does not exist") from None
    except OSError as error:
        raise Error(f"inventory {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidArgument(f"inventory {file}: {error}") from None
    try:
        return yaml.load(content, Loader=Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InvalidArgument(f"inventory {file} is not YAML: {reason}") from None


def _export(file: Path) -> str:
    return (
        f"'ansible-inventory -i {file} --list --yaml --output plain.yml' exports it; give the "
        "exported file, with the value in plain text"
    )


def _groups(file: Path, document: Any) -> dict[str, _Group]:
    groups: dict[str, _Group] = {"all": _Group()}

    def wrong(where: str, what: str) -> InvalidArgument:
        return InvalidArgument(f"inventory {file}: {where} {what}")

    def mapping(value: Any, where: str) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise wrong(where, "is not a mapping of names")
        return value

    def add(name: str, value: Any, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise wrong(f"group {shown(name)}", f"is nested more than {_MOST_DEPTH} deep")
        if not NAME.fullmatch(name):
            raise wrong(f"group {shown(name)}", "has no valid name")
        group = groups.setdefault(name, _Group())
        parts = mapping(value, f"group {name}")
        unknown = parts.keys() - {"hosts", "vars", "children"}
        if unknown:
            raise wrong(
                f"group {name}", f"has {sorted(unknown)}; it may have hosts, vars, children"
            )
        group.variables.update(mapping(parts.get("vars"), f"group {name}: vars"))
        for pattern, own in mapping(parts.get("hosts"), f"group {name}: hosts").items():
            for host in _expanded(pattern):
                if not NAME.fullmatch(host):
                    raise wrong(f"host {shown(host)}", "has no valid name: letters, digits, . _ -")
                previous = group.hosts.get(host, {})
                group.hosts[host] = {**previous, **mapping(own, f"host {host}")}
                if sum(len(g.hosts) for g in groups.values()) > 4 * _MOST_HOSTS:
                    raise wrong(f"group {name}", f"makes more than {_MOST_HOSTS} hosts")
        for child, inside in mapping(parts.get("children"), f"group {name}: children").items():
            group.children.append(child)
            add(child, inside, depth + 1)

    for name, value in mapping(document, "the file").items():
        add(name, value, 0)
    below = {child for group in groups.values() for child in group.children}
    groups["all"].children += [n for n in groups if n != "all" and n not in below]
    return groups


def _expanded(pattern: str) -> Iterator[str]:
    """Yield the hosts of a name with ranges, such as ``node-[0:3]``, both ends included."""
    match = _RANGE.search(pattern)
    if match is None:
        yield pattern
        return
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step < 1 or last < first or (last - first) // step >= _MOST_HOSTS:
        raise InvalidArgument(
            f"host {shown(pattern)}: the range {match[0]} is not FIRST:LAST[:STEP] with at most "
            f"{_MOST_HOSTS} hosts"
        )
    for number in range(first, last + 1, step):
        text = f"{number:0{len(match[1])}d}"
        yield from _expanded(pattern[: match.start()] + text + pattern[match.end() :])


def _parents_first(file: Path, groups: Mapping[str, _Group]) -> list[str]:
    """Return the groups, parents before children, so that the variables of a child win."""
    depth = dict.fromkeys(groups, 0)
    for _ in range(_MOST_DEPTH + 2):
        changed = False
        for name, group in groups.items():
            for child in group.children:
                if depth[child] <= depth[name]:
                    depth[child] = depth[name] + 1
                    changed = True
        if not changed:
            return sorted(groups, key=lambda name: depth[name])
    raise InvalidArgument(f"inventory {file}: a group is its own child; remove the circle")


def _with_children(name: str, groups: Mapping[str, _Group]) -> list[str]:
    found = [name]
    for entry in found:
        found += [child for child in groups[entry].children if child not in found]
    return found


def _fits(host: HostEntry, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in (host.name, *host.groups))


def _default_testbed(file: Path) -> str:
    return re.sub(r"[^\w.-]", "-", file.stem, flags=re.ASCII).lstrip(".-")[:64] or "hosts"


def _text(file: Path, host: str, values: Mapping[str, Any], name: str, default: str = "") -> str:
    value = values.get(name, default)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidArgument(
            f"inventory {file}: host {host}: {name} is {shown(value)}; give a text"
        )
    text = str(value)
    if "{{" in text or "{%" in text or text.startswith("$ANSIBLE_VAULT"):
        raise InvalidArgument(
            f"inventory {file}: host {host}: {name} is a template or a vault; {_export(file)}"
        )
    if len(text) > 4096 or "\n" in text or "\0" in text:
        raise InvalidArgument(
            f"inventory {file}: host {host}: {name} has a line break or over 4096 characters"
        )
    return text


def _host(file: Path, name: str, values: Mapping[str, Any], groups: Iterable[str]) -> HostEntry:
    where = f"inventory {file}: host {name}"

    def text(key: str, default: str = "") -> str:
        return _text(file, name, values, key, default)

    def valid(key: str, default: str, is_valid: Callable[[str], Any], remedy: str) -> str:
        value = text(key, default)
        if value != default and not is_valid(value):
            raise InvalidArgument(f"{where}: {key} is {shown(value)}; give {remedy}")
        return value

    def whole(key: str, default: int, least: int, most: int) -> int:
        value = text(key, str(default))
        if not re.fullmatch(r"\d{1,9}", value) or not least <= int(value) <= most:
            raise InvalidArgument(f"{where}: {key} is {shown(value)}; give {least} to {most}")
        return int(value)

    connection = valid("ansible_connection", "ssh", {"ssh", "local"}.__contains__, "ssh or local")
    listen = valid("pyrdma_listen", "", _is_endpoint, "ADDRESS:PORT")
    token_file = text("pyrdma_token_file")
    address = valid(
        "pyrdma_address", "", _is_address, "the host's IP address on the experiment network"
    )
    device = text("pyrdma_device")
    try:
        wish = Wish.parse(device) if device else Wish()
        wish = Wish(wish.device, wish.port, wish.gid_index, address or wish.address)
        arguments = tuple(shlex.split(text("ansible_ssh_common_args")))
    except ValueError as error:
        raise InvalidArgument(f"{where}: {error}") from None
    # Without the token's file the daemon at `listen` is for other drivers, those on the hosts.
    connection = "listen" if listen and token_file else connection
    valid(
        "pyrdma_testbed",
        "",
        lambda v: NAME.fullmatch(v) and len(v) <= 64,
        "letters, digits, . _ -",
    )
    return HostEntry(
        name=name,
        connection=connection,
        host=valid(
            "ansible_host", name, lambda v: NAME.fullmatch(v) or _is_address(v), "a host name"
        ),
        port=whole("ansible_port", 0, 0, 65535),
        user=valid("ansible_user", "", _USER.fullmatch, "a user's name"),
        key=text("ansible_ssh_private_key_file"),
        arguments=arguments,
        command=text("pyrdma_command", "" if connection == "local" else DEFAULT_COMMAND),
        wish=wish,
        slots=whole("pyrdma_slots", 1, 1, _SLOTS),
        listen=listen,
        token_file=token_file,
        groups=tuple(dict.fromkeys(groups)),
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_endpoint(text: str) -> bool:
    address, _, port = text.rpartition(":")
    return _is_address(address.strip("[]")) and port.isdigit() and 0 < int(port) < 65536
