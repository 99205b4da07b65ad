"""Check what this machine can do, and name the remedy for what it cannot do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from . import devices, provenance
from ._native import native
from .errors import Unavailable
from .fabrics import FABRICS, fabric_problem

__all__ = ["Check", "checks", "install_controller", "install_extra"]

CONTROLLER = ("pandas", "pyarrow", "matplotlib", "hdrh", "jinja2", "PIL")
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
    remedy, ready = "", "ready"
    if name == "verbs" and not problem:
        ready = f"ready: {devices.choose()['reason']}"
    elif name == "verbs" and not _has_provider():
        remedy = f"{_apt_install('libibverbs-dev librdmacm-dev')} && {_build_again()}"
    return Check(f"fabric {name}", not problem, problem or ready, remedy)


def _has_provider() -> bool:
    """Return whether the native module was built with the provider for real NICs."""
    try:
        core: Any = native()
    except Unavailable:
        return True  # unknown, but the module that cannot be loaded must be repaired first
    return bool(core.ibverbs.has_provider())


def _sudo() -> str:
    """Return the prefix of a root command; root may lack sudo."""
    return "" if os.geteuid() == 0 else "sudo "


def _apt_install(packages: str) -> str:
    return f"{_sudo()}apt-get install -y {packages}"


def _pip_install(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def _build_again() -> str:
    """Return the command that rebuilds the installed package from its source."""
    try:
        text = importlib.metadata.distribution("pyrdma").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file":
        return _pip_install("--force-reinstall", "--no-deps", "--no-binary", "pyrdma", "pyrdma")
    editable = ["--editable"] if origin.get("dir_info", {}).get("editable") else []
    return _pip_install("--force-reinstall", "--no-deps", *editable, unquote(url.path))


def install_controller() -> str:
    """Return the command that installs the packages of the extra `controller`."""
    return install_extra("controller")


def install_extra(extra: str) -> str:
    """Return the command that installs the packages of an extra of this package."""
    wanted = []
    for row in importlib.metadata.requires("pyrdma") or []:
        requirement, _, marker = row.partition(";")
        if re.search(rf"""extra == ['"]{extra}['"]""", marker):
            wanted.append(requirement.strip())
    return _pip_install(*wanted)


def _controller() -> Check:
    missing = [name for name in CONTROLLER if importlib.util.find_spec(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else "ready"
    remedy = install_controller() if missing else ""
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
    return Check(
        "huge pages", False, "none reserved", f"{_sudo()}sysctl -w vm.nr_hugepages=512", note
    )


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
        f"{_sudo()}tee /etc/security/limits.d/pyrdma.conf",
        "for real NICs; takes effect at the next login; a service of systemd needs "
        "LimitMEMLOCK=infinity in its unit",
    )


def _connections(file: Path = Path("/dev/infiniband/rdma_cm")) -> Check:
    """Check the device file of librdmacm, which makes connections by address."""
    name = "connections by address"
    if not file.exists():
        note = "for real NICs, optional"
        return Check(name, False, f"{file} is missing", f"{_sudo()}modprobe rdma_ucm", note)
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
        remedy = _apt_install(package) + (f" && {_build_again()}" if at_build else "")
        found.append(
            Check(f"library {name}", not problem, problem or "ready", remedy if problem else "")
        )
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
