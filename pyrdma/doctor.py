"""Check what this machine can do, and name the remedy for what it cannot do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import resource
import shlex
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from . import devices, provenance
from ._native import native
from .errors import Unavailable
from .extras import CONTROLLER, install_extra, pip_install
from .fabrics import FABRICS, fabric_problem

__all__ = ["Check", "checks"]

_APT_LISTS = Path("/var/lib/apt/lists")
_PEERS = {
    "ucx_perftest": "ucx-utils",
    "mpicc": "libopenmpi-dev",
    "mpirun": "openmpi-bin",
    "ib_write_lat": "perftest",
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "etcd": "etcd-server",
    "idlc": "cyclonedds-tools",
    "corosync": "corosync",
}


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Parameters
    ----------
    name
        The object of the check.
    ok
        Whether it is available.
    found
        The finding.
    remedy
        Shell command that provides it; empty if there is none.
    note
        Further advice.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""
    note: str = ""


def checks() -> list[Check]:
    """Check everything that experiments use."""
    found = [*checks_of_a_node(), _controller()]
    found += [_program(program, package) for program, package in _PEERS.items()]
    found.append(_simgrid())
    return found


def checks_of_a_node() -> list[Check]:
    """Check what a machine needs to hold nodes; it needs less than one that draws figures."""
    found = [_fabric(name) for name in FABRICS]
    found += [_cores(), _cpu(), _huge_pages(), _memlock(), _connections()]
    return [*found, *_libraries()]


def _fabric(name: str) -> Check:
    problem = fabric_problem(name)
    if name == "verbs" and problem:
        remedy, note = _verbs_remedy()
        return Check(f"fabric {name}", False, problem, remedy, note)
    ready = f"ready: {devices.choose()['reason']}" if name == "verbs" else "ready"
    return Check(f"fabric {name}", not problem, problem or ready)


def _verbs_remedy() -> tuple[str, str]:
    """Return the command that provides what real NICs lack, and advice on it."""
    if not _has_provider():
        build, note = _build_again()
        return _joined(_apt_install("libibverbs-dev librdmacm-dev"), build), note
    if devices.problem():
        return _apt_install("libibverbs1 ibverbs-providers librdmacm1"), ""
    if devices.entries():
        return "", ""  # the finding says what each device lacks
    add = f"rdma link add rxe0 type rxe netdev {shlex.quote(_interface())}"
    note = "for a software device on an interface; many kernels of clouds lack the module"
    return _as_root("modprobe rdma_rxe", add), note


def _interface() -> str:
    """Return the network interface of the default route, or any other."""
    try:
        routes = Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]
        found = [row.split()[0] for row in routes if row.split()[1] == "00000000"]
    except (OSError, IndexError):
        found = []
    others = (name for _, name in socket.if_nameindex() if name != "lo")
    return next(iter([*found, *others]), "eth0")


def _has_provider() -> bool:
    """Return whether the native module was built with the provider for real NICs."""
    try:
        core: Any = native()
    except Unavailable:
        return True  # unknown, but the module that cannot be loaded must be repaired first
    return bool(core.ibverbs.has_provider())


def _has_sudo() -> bool:
    return shutil.which("sudo") is not None


def _as_root(*commands: str) -> str:
    """Return a line that runs commands as root; root needs no sudo, and a machine may lack it."""
    if os.geteuid() == 0:
        return " && ".join(commands)
    if _has_sudo():
        return " && ".join(f"sudo {command}" for command in commands)
    return f"su - -c {shlex.quote(' && '.join(commands))}"


def _apt_install(packages: str) -> str:
    # Images of containers come without lists of packages.
    update = () if any(_APT_LISTS.glob("*_Packages*")) else ("apt-get update",)
    return _as_root(*update, f"apt-get install -y {packages}")


def _joined(*commands: str) -> str:
    return " && ".join(command for command in commands if command)


def _build_again() -> tuple[str, str]:
    """Return the command that rebuilds the installed package from its source, or what to do."""
    try:
        text = importlib.metadata.distribution("pyrdma").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url = urlsplit(origin.get("url", ""))
    source = Path(unquote(url.path))
    if url.scheme != "file" or not (source / "pyproject.toml").is_file():
        return (
            "",
            "then build pyrdma again: pip install --force-reinstall '.[controller]' in its source",
        )
    editable = ["--editable"] if origin.get("dir_info", {}).get("editable") else []
    return pip_install("--force-reinstall", "--no-deps", *editable, str(source)), ""


def _controller() -> Check:
    missing = [name for name in CONTROLLER if importlib.util.find_spec(name) is None]
    found = f"the extra `controller` is missing: {', '.join(missing)}" if missing else "ready"
    remedy = install_extra("controller") if missing else ""
    return Check("tables and figures", not missing, found, remedy)


def _cores() -> Check:
    cores = provenance.usable_cores()
    shared = "the nodes of shm share one core, so their rates are not meaningful"
    note = "" if cores >= 2 else shared
    return Check("cores", cores >= 2, f"{cores} usable of {os.cpu_count()}", note=note)


def _cpu() -> Check:
    level = provenance.cpu_level()
    note = "" if level >= 2 else "the build needs x86-64-v2"
    return Check("CPU", level >= 2, f"x86-64-v{level}", note=note)


def _huge_pages() -> Check:
    total = 0
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("HugePages_Total:"):
                total = int(line.split()[1])
    except OSError:
        pass
    if total:
        return Check("huge pages", True, f"{total} reserved")
    note = "optional; repeat it after each boot"
    remedy = _as_root("sysctl -w vm.nr_hugepages=512")
    return Check("huge pages", False, "none reserved", remedy, note)


def _memlock() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or soft >= 1 << 30:
        text = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
        return Check("locked memory", True, text)
    return Check(
        "locked memory",
        False,
        f"{soft // 1024} KiB",
        # The star in limits.conf excludes root.
        r"printf '* - memlock unlimited\nroot - memlock unlimited\n' | "
        + _as_root("tee /etc/security/limits.d/pyrdma.conf"),
        "for real NICs; takes effect at the next login; a service of systemd needs "
        "LimitMEMLOCK=infinity in its unit",
    )


def _connections(file: Path = Path("/dev/infiniband/rdma_cm")) -> Check:
    """Check the device file of librdmacm, which makes connections by address."""
    name = "connections by address"
    if not file.exists():
        note = "for real NICs, optional"
        return Check(name, False, f"{file} is missing", _as_root("modprobe rdma_ucm"), note)
    if not os.access(file, os.R_OK | os.W_OK):
        found = f"this user may not open {file}"
        note = "the package has a rule that opens it"
        return Check(name, False, found, _apt_install("rdma-core"), note)
    return Check(name, True, "ready")


def _libraries() -> list[Check]:
    """Check the libraries without which parts of the systems are missing."""
    try:
        core: Any = native()
    except Unavailable:
        return []  # the fabrics' lines have said why
    found = []
    for name, package, at_build, problem in core.libraries():
        remedy = note = ""
        if problem:
            build, note = _build_again() if at_build else ("", "")
            remedy = _joined(_apt_install(package), build)
        found.append(Check(f"library {name}", not problem, problem or "ready", remedy, note))
    return found


def _program(program: str, package: str) -> Check:
    # A user's PATH may lack the folder of the daemons.
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    remedy = "" if path else _apt_install(package)
    return Check(f"peer {program}", path is not None, path or "missing", remedy)


def _simgrid() -> Check:
    prefixes = ("/usr", "/usr/local")
    if any((Path(prefix) / "include/simgrid/s4u.hpp").is_file() for prefix in prefixes):
        return Check("peer SimGrid", True, "ready")
    return Check("peer SimGrid", False, "missing", _apt_install("libsimgrid-dev"))
