"""The machine, code and versions that measured a result."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ._version import __version__
from .trust import distrusted

__all__ = ["collect", "cpu_level", "machine", "now", "rdma_devices"]

# psABI levels: each level adds these flags of /proc/cpuinfo to the one below.
_LEVELS = (
    (2, {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    (3, {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    (4, {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
_PACKAGES = ("numpy", "pandas", "pyarrow", "matplotlib", "hdrhistogram")


def now() -> str:
    """Return the time in UTC, to the microsecond; it tells which of two measurements is newer."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


@cache
def collect() -> dict[str, Any]:
    """Return versions, source state, CPU, kernel and NICs, as the first call found them."""
    return {
        "pyrdma": __version__,
        "git": _git(),
        "python": platform.python_version(),
        "packages": _versions(),
        "kernel": platform.release(),
        "system": _system(),
        "host": platform.node(),
        "cpu": {**_cpu(), "level": f"x86-64-v{cpu_level()}", "cores": usable_cores()},
        "nics": rdma_devices(),
    }


def usable_cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def machine() -> str:
    """Return the CPU and the number of its cores: the part of a machine that real time shows."""
    return f"{_cpu()['model']}, {usable_cores()} cores"


@cache
def _git() -> dict[str, Any] | None:
    """Return commit and cleanness of the source tree, or None outside of one."""
    folder = Path(__file__).parent.parent
    if not (folder / ".git").exists() or distrusted(folder / ".git"):
        return None
    # The settings of a repository can name programs that `git status` runs.
    git = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(folder)]
    try:
        commit = _output([*git, "rev-parse", "HEAD"])
        changes = _output([*git, "status", "--porcelain"])
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit.strip(), "clean": not changes.strip()}


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    fields = {}
    for line in text.split("\n\n", maxsplit=1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def _cpu() -> dict[str, Any]:
    fields = _cpuinfo()
    return {"model": fields.get("model name", platform.machine()), "machine": platform.machine()}


@cache
def cpu_level() -> int:
    """Return the x86-64 level of this CPU, 1 to 4."""
    flags = set(_cpuinfo().get("flags", "").split())
    level = 1
    for number, needed in _LEVELS:
        if not needed <= flags:
            break
        level = number
    return level


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def rdma_devices() -> list[dict[str, str]]:
    """Return name, firmware, board and state of the RDMA devices that the kernel knows."""
    devices = []
    for path in sorted(Path("/sys/class/infiniband").glob("*")):
        device = {"name": path.name}
        for key, file in (
            ("firmware", "fw_ver"),
            ("board", "board_id"),
            ("state", "ports/1/state"),
            ("rate", "ports/1/rate"),
            ("link", "ports/1/link_layer"),
        ):
            try:
                device[key] = (path / file).read_text(encoding="utf-8").strip()
            except OSError:
                continue
        devices.append(device)
    return devices
