"""What this machine can do, and how to get what it cannot."""

from __future__ import annotations

import importlib
import importlib.util
import os
import resource
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from . import provenance
from .errors import Unavailable
from .experiment import FABRICS

__all__ = ["Check", "checks", "fabric_problem", "native"]

CONTROLLER = ("pandas", "pyarrow", "matplotlib", "scipy", "hdrh")
_PEERS = {
    "ucx_perftest": "ucx-utils",
    "mpicc": "libopenmpi-dev",
    "mpirun": "openmpi-bin",
    "ib_write_lat": "perftest",
}


@dataclass(frozen=True)
class Check:
    """One line of the doctor: a subject, whether it is there, what was found, the remedy."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def native() -> object:
    """Return the native module.

    Raises
    ------
    Unavailable
        It was not built for this Python.
    """
    try:
        return importlib.import_module(f"{__package__}._core")
    except ImportError as error:
        raise Unavailable(
            f"the native module pyrdma._core cannot be loaded ({error}); build it for Python "
            f"{sys.version_info.major}.{sys.version_info.minor} with: pip install ."
        ) from error


def fabric_problem(fabric: str) -> str:
    """Return why a fabric is not there and what to do, or nothing when it is."""
    try:
        native()
    except Unavailable as error:
        return str(error)
    if fabric == "shm":
        return "" if hasattr(os, "memfd_create") else "this system has no memory files; use Linux"
    return _verbs_problem() if fabric == "verbs" else ""


def _verbs_problem() -> str:
    """Return what is missing for real NICs: in the build, of rdma-core, or a device."""
    from . import devices

    missing = devices.problem()
    if missing:
        return missing
    try:
        devices.choose()
    except Unavailable as error:
        return str(error)
    return ""


def checks() -> list[Check]:
    """Look at everything that experiments use."""
    found = [_fabric(name) for name in FABRICS]
    found += [_controller(), _cores(), _cpu(), _huge_pages(), _memlock(), _connections()]
    found += [_program(program, package) for program, package in _PEERS.items()]
    found.append(_simgrid())
    return found


def _fabric(name: str) -> Check:
    problem = fabric_problem(name)
    ready = "ready"
    if name == "verbs" and not problem:
        from . import devices

        ready = f"ready: {devices.choose()['reason']}"
    return Check(f"fabric {name}", not problem, problem or ready)


def _controller() -> Check:
    missing = [name for name in CONTROLLER if importlib.util.find_spec(name) is None]
    if not missing:
        return Check("tables and figures", True, "ready")
    return Check(
        "tables and figures",
        False,
        f"missing: {', '.join(missing)}",
        "pip install 'pyrdma[controller]'",
    )


def _cores() -> Check:
    cores = provenance.usable_cores()
    note = "" if cores >= 2 else "nodes of shm share one core: rates say nothing there"
    return Check("cores", cores >= 2, f"{cores} usable of {os.cpu_count()}", note)


def _cpu() -> Check:
    level = provenance.cpu_level()
    return Check(
        "CPU", level >= 2, f"x86-64-v{level}", "" if level >= 2 else "the build needs x86-64-v2"
    )


def _huge_pages() -> Check:
    total = 0
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("HugePages_Total:"):
                total = int(line.split()[1])
    except OSError:
        pass
    remedy = "" if total else "optional: sysctl -w vm.nr_hugepages=512, again after each boot"
    return Check("huge pages", total > 0, f"{total} reserved", remedy)


def _memlock() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    enough = soft == resource.RLIM_INFINITY or soft >= 1 << 30
    text = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft // 1024} KiB"
    remedy = (
        ""
        if enough
        else "for real NICs: '* - memlock unlimited' and, which * leaves out, 'root - memlock "
        "unlimited' in /etc/security/limits.conf, and a new login; for what systemd starts, "
        "LimitMEMLOCK=infinity in its unit"
    )
    return Check("locked memory", enough, text, remedy)


def _connections(file: Path = Path("/dev/infiniband/rdma_cm")) -> Check:
    """Look for what librdmacm opens, which makes connections by address."""
    name = "connections by address"
    if not file.exists():
        return Check(name, False, f"no {file}", "for real NICs, optional: modprobe rdma_ucm")
    if not os.access(file, os.R_OK | os.W_OK):
        remedy = f"apt install rdma-core, which brings the rule for it, or chmod a+rw {file}"
        return Check(name, False, f"this user may not open {file}", remedy)
    return Check(name, True, "ready")


def _program(program: str, package: str) -> Check:
    path = shutil.which(program)
    remedy = "" if path else f"apt install {package}"
    return Check(f"peer {program}", path is not None, path or "missing", remedy)


def _simgrid() -> Check:
    found = any(
        (Path(prefix) / "include/simgrid/s4u.hpp").is_file() for prefix in ("/usr", "/usr/local")
    )
    return Check(
        "peer SimGrid",
        found,
        "ready" if found else "missing",
        "" if found else "apt install libsimgrid-dev",
    )
