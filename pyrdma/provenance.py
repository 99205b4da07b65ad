"""The machine, code and versions that measured a result."""

from __future__ import annotations

import hashlib
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

__all__ = ["code_digest", "collect", "cpu_level", "now", "rdma_devices"]

# psABI levels: each level adds these flags of /proc/cpuinfo to the one below.
_LEVELS = (
    (2, {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    (3, {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    (4, {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)
# A point's key leaves out the code of these folders, which decides no measured number. The sweep
# hashes an experiment's own file.
_DECIDE_NO_NUMBER = ("bench", "commands", "experiments")
_PACKAGES = ("numpy", "pandas", "pyarrow", "scipy", "matplotlib", "hdrhistogram")


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def collect() -> dict[str, Any]:
    """Return versions, source state, CPU, kernel and NICs of this machine."""
    return {
        "pyrdma": __version__,
        "code": code_digest(),
        "git": _git(),
        "python": platform.python_version(),
        "packages": _versions(),
        "kernel": platform.release(),
        "system": _system(),
        "cpu": {**_cpu(), "level": f"x86-64-v{cpu_level()}", "cores": usable_cores()},
        "nics": rdma_devices(),
        "time": now(),
    }


def usable_cores() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def code_digest() -> str:
    """Return a hash of this package's code, native module included.

    A sweep that resumes does not count points as done that other code measured.
    """
    digest = hashlib.sha256()
    package = Path(__file__).parent
    modules = (
        path
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] not in _DECIDE_NO_NUMBER
    )
    for path in sorted([*modules, *package.rglob("_core*.so")]):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    digest.update(_native_path_bytes(package))
    return digest.hexdigest()[:16]


def _native_path_bytes(package: Path) -> bytes:
    """Return the native module's bytes if an editable install keeps it elsewhere."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(f"{__package__}._core")
    except ImportError:
        return b""
    if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(package):
        return b""
    return Path(spec.origin).read_bytes()


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
