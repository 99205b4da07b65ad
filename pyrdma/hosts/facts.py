"""What a host is, for ``hosts.parquet``, and the counters of its RDMA ports.

Everything comes from the kernel's files and from the choice of a device. A fact that a host does
not have is an empty text, or -1.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyrdma import devices, provenance
from pyrdma.devices import Wish
from pyrdma.errors import Error
from pyrdma.fabrics import fabric_problem

__all__ = ["LOST", "NOT_READY", "collect", "counters", "increase", "sent_bytes"]

_SYS = Path("/sys")
_PROC = Path("/proc")

LOST = frozenset(
    {
        # mlx5: rdma-core's and the vendor's documents of hw_counters
        *("local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err", "out_of_sequence"),
        *("duplicate_request", "roce_adp_retrans", "roce_adp_retrans_to"),
        # mlx4 (drivers/infiniband/hw/mlx4/main.c)
        *("sq_num_to", "sq_num_sre", "rq_num_dup", "rq_num_oos"),
        # Soft-RoCE (drivers/infiniband/sw/rxe/rxe_hw_counters.c)
        *("out_of_seq_request", "rcvd_seq_err", "completer_retry_err"),
    }
)
"""Counters that rise when a packet is sent again because one was lost or late."""

NOT_READY = frozenset({"rnr_nak_retry_err", "sq_num_rnr", "rcvd_rnr_err", "send_rnr_err"})
"""Counters that rise when a receiver had no receive posted and the packet is sent again."""

_SENT = {"port_xmit_data": 4, "sent_pkts": 1}
"""Counters of what a port has sent, with the bytes of one count; Soft-RoCE counts packets only."""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()[:1024]
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _read(path)
    return int(text) if text.lstrip("-").isdigit() else -1


def collect(wish: Wish) -> dict[str, Any]:
    """Return the facts of this host by name: texts and integers."""
    made_by = provenance.collect()
    governors = {_read(p) for p in _SYS.glob("devices/system/cpu/cpu*/cpufreq/scaling_governor")}
    memlock, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    sockets = {_read(p) for p in _SYS.glob("devices/system/cpu/cpu*/topology/physical_package_id")}
    huge = _SYS / "kernel/mm/hugepages/hugepages-2048kB"
    return {
        "hostname": made_by["host"],
        "system": made_by["system"],
        "kernel": made_by["kernel"],
        "python": made_by["python"],
        "pyrdma": made_by["pyrdma"],
        "cpu": made_by["cpu"]["model"],
        "cpu_level": made_by["cpu"]["level"],
        "cores": made_by["cpu"]["cores"],
        "sockets": len(sockets),
        "smt": _read(_SYS / "devices/system/cpu/smt/control"),
        "numa_nodes": len(list(_SYS.glob("devices/system/node/node[0-9]*"))),
        "governor": ", ".join(sorted(governors)),
        "memory_kb": _memory(),
        "huge_pages_2mb": _number(huge / "nr_hugepages"),
        "huge_pages_free": _number(huge / "free_hugepages"),
        "memlock_bytes": -1 if memlock == resource.RLIM_INFINITY else memlock,
        "open_files": files,
        "clock_source": _read(_SYS / "devices/system/clocksource/clocksource0/current_clocksource"),
        "machine_kind": _read(_SYS / "class/dmi/id/product_name"),
        **_nic(wish),
    }


def _memory() -> int:
    for line in _read(_PROC / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return -1


_NO_NIC: Mapping[str, Any] = {
    **dict.fromkeys(("nic", "nic_board", "nic_kind", "firmware", "driver", "link_layer"), ""),
    **dict.fromkeys(("link_state", "link_rate", "pcie", "gid", "gid_type", "interface"), ""),
    **dict.fromkeys(("port", "mtu", "interface_mtu", "gid_index", "nic_numa_node"), -1),
    "address": "",
    "nic_on_login_network": "",
    "nic_problem": "",
    "nic_reason": "",
}


def _nic(wish: Wish) -> dict[str, Any]:
    """Return what the device is that nodes with this wish use."""
    found = dict(_NO_NIC)
    problem = fabric_problem("verbs") if not wish.device else devices.problem()
    if problem:
        return {**found, "nic_problem": problem[:1024]}
    try:
        chosen = devices.choose(wish)
    except Error as error:
        return {**found, "nic_problem": str(error)[:1024]}
    place = _SYS / "class/infiniband" / chosen["device"]
    port = place / "ports" / str(chosen["port"])
    pci = place / "device"
    speed, width = _read(pci / "current_link_speed"), _read(pci / "current_link_width")
    found |= {
        "nic": chosen["device"],
        "nic_reason": chosen["reason"][:1024],
        "nic_board": _read(place / "board_id"),
        "nic_kind": _read(place / "hca_type") or _read(place / "node_desc"),
        "firmware": _read(place / "fw_ver"),
        "driver": _link_name(pci / "driver") or _kind_without_driver(chosen["device"]),
        "link_layer": _read(port / "link_layer"),
        "link_state": _read(port / "state"),
        "link_rate": _read(port / "rate"),
        "pcie": f"{speed} x{width}" if speed and width else "",
        "port": chosen["port"],
        "gid_index": chosen["gid_index"],
        "address": chosen["address"],
        "nic_numa_node": _number(pci / "numa_node"),
    }
    for entry in devices.entries():
        same = entry.device == chosen["device"] and entry.port == chosen["port"]
        if same and entry.gid_index == chosen["gid_index"]:
            found |= {
                "gid": entry.gid,
                "gid_type": entry.type,
                "mtu": entry.mtu,
                "interface": entry.interface,
                "interface_mtu": _number(_SYS / "class/net" / entry.interface / "mtu"),
                "nic_on_login_network": "yes" if entry.login else "no",
            }
    return found


def _link_name(path: Path) -> str:
    try:
        return path.readlink().name
    except OSError:
        return ""


def _kind_without_driver(device: str) -> str:
    return "rdma_rxe" if device.startswith("rxe") else ""


def _ports() -> Iterator[tuple[str, str, Path]]:
    for port in sorted((_SYS / "class/infiniband").glob("*/ports/*")):
        yield port.parts[-3], port.name, port


def counters() -> dict[str, Any]:
    """Return the counters of each port of each device: ``{"mlx5_0/1": {name: count}}``.

    The key ``login`` lists the ports on the login network, joined by commas.
    """
    found: dict[str, Any] = {}
    for device, port, folder in _ports():
        values = {}
        for file in (*folder.glob("counters/*"), *folder.glob("hw_counters/*")):
            value = _number(file)
            if value >= 0:
                values[file.name] = value
        found[f"{device}/{port}"] = values
    login: set[str] = set()
    if found and not devices.problem():
        login = {f"{e.device}/{e.port}" for e in devices.entries() if e.login}
    return {"ports": found, "login": ",".join(sorted(login))}


def increase(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return by how much each counter rose between two calls of `counters`, where it did."""
    found: dict[str, dict[str, int]] = {}
    for port, values in after["ports"].items():
        earlier = before["ports"].get(port, {})
        risen = {n: v - earlier.get(n, 0) for n, v in values.items() if v > earlier.get(n, 0)}
        if risen:
            found[port] = risen
    return found


def sent_bytes(risen: Mapping[str, int]) -> int:
    """Return the bytes that a port has sent, or its packets where it counts no bytes."""
    for name, factor in _SENT.items():
        if name in risen:
            return risen[name] * factor
    return 0
