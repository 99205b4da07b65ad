"""The state of all hosts of an inventory, asked at once, as ``pyrdma hosts`` shows it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyrdma.errors import Error
from pyrdma.sources import source_digest

from .clocks import HostClocks
from .fleet import Fleet, explain
from .host import Host
from .inventory import Inventory

__all__ = ["collect"]

_NEEDED = ("fabric verbs", "CPU")
"""Lines of the doctor without which a host holds no nodes of fabric verbs."""


def collect(inventory: Path, hosts: str | None = None) -> list[dict[str, Any]]:
    """Return a row for each host, with its problem if it has one.

    Its names are ``host``, ``version``, ``digest``, ``device``, ``clock``, ``problem``,
    ``wishes`` (lines of the doctor), ``facts``.

    A host that cannot be reached is a row with a problem.
    """
    chosen = Inventory.load(inventory).select(hosts)
    with Fleet(chosen, strict=False) as fleet:
        there = [host for host in fleet.hosts if not host.lost]
        asked = {h: (h.ask("checks"), h.ask("facts", **asdict(h.entry.wish))) for h in there}
        rows = {h: _row(h, *asked[h]) for h in there}
        good = [h for h in there if not rows[h]["problem"]]
        _add_clocks(good, rows)
        return [rows[h] if h in rows else _lost(h, inventory) for h in fleet.hosts]


def _lost(host: Host, inventory: Path) -> dict[str, Any]:
    empty = dict.fromkeys(("version", "digest", "device", "clock"), "")
    problem = explain(host, inventory)
    return {"host": host.name, **empty, "problem": problem, "wishes": [], "facts": {}}


def _row(host: Host, checks: Future[Any], facts: Future[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "host": host.name,
        "version": host.hello["version"],
        "digest": host.hello["digest"],
        "device": "",
        "clock": "",
        "problem": "",
        "wishes": [],
        "facts": {},
    }
    try:
        lines = host.wait(checks, "checks")["checks"]
        row["facts"] = found = host.wait(facts, "facts")
    except Error as error:
        return {**row, "problem": str(error)}
    if found["nic"]:
        gid = f"{found['gid_type']} GID {found['gid_index']}" if found["gid_type"] else "no GID"
        address = found["address"]
        row["device"] = f"{found['nic']}:{found['port']}, {gid}, {address}".removesuffix(", ")
    row["clock"] = found["clock_source"]
    problems = [line for line in lines if not line["ok"] and line["name"] in _NEEDED]
    row["wishes"] = [line for line in lines if not line["ok"] and line["name"] not in _NEEDED]
    if host.hello["digest"] != source_digest():
        row["problem"] = f"it has other code ({host.hello['digest']}) than here ({source_digest()})"
    elif found["nic_problem"]:
        row["problem"] = found["nic_problem"]
    elif problems:
        row["problem"] = "; ".join(f"{line['name']}: {line['found']}" for line in problems)
    return row


def _add_clocks(hosts: list[Host], rows: dict[Host, dict[str, Any]]) -> None:
    """Compare the clocks of good hosts over the experiment network."""
    if len(hosts) < 2:
        return
    if not hosts[0].entry.address:
        rows[hosts[0]]["problem"] = "the inventory gives no pyrdma_address"
        return
    try:
        HostClocks(hosts)
    except Error as error:
        rows[hosts[0]]["problem"] = f"clocks: {error}"
        return
    for host in hosts[1:]:
        assert host.compared is not None
        offset, bound = host.compared.offset_ns / 1e3, host.compared.bound_ns / 1e3
        rows[host]["clock"] += f", {offset:+.1f} us ({bound:.1f})"
