"""What a wheel must keep, so that it runs on every host: tag, size, libraries, instructions."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

MOST_BYTES = 8_000_000
"""With five systems, their library and headers, a wheel has 6.8 MB."""
NEWEST_GLIBC = 35
"""Ubuntu 22.04 has glibc 2.35."""

NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
"""Every system of such a glibc has them; libgcc_s unwinds C++ exceptions."""

_RDMA_CORE = re.compile(r"lib(ibverbs|rdmacm|mlx\d|efa|irdma|rxe|siw|nl-)|rdma-core")
_SYMBOL = re.compile(r"\s(ibv|rdma|mlx5dv|_ibv|verbs)_\w+$", re.MULTILINE)
_TEXTS = (b"RDMAV_FORK_SAFE", b"RDMA_CM_EVENT_ADDR_RESOLVED", b"MLX5_SINGLE_THREADED")
"""Texts in the code of libibverbs, librdmacm and libmlx5, which may be linked statically."""

# Instructions with a VEX or EVEX prefix have names that begin with v; the others are of BMI.
_NEWER = re.compile(
    r"\t(v(?!err|erw|mcall|mlaunch|mread)[a-z]\w+|andn|bextr|bls[ir]|blsmsk|mulx|pdep|pext|rorx|"
    r"sarx|shlx|shrx|bzhi|movbe)\s"
)


def complaints(wheel: Path, folder: Path, newest_glibc: int = NEWEST_GLIBC) -> list[str]:
    """Return what is wrong with a wheel; it is unpacked into `folder`."""
    found = []
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        found.append(f"{size} bytes, at most {MOST_BYTES}")
    tag = re.fullmatch(r".*-manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    if not tag or int(tag[1]) > newest_glibc:
        found.append(f"the tag of {wheel.name} is not of glibc 2.{newest_glibc} or older")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    libraries = [path for path in folder.rglob("*") if ".so" in path.suffixes]
    found += [f"{path.name} is of rdma-core" for path in libraries if _RDMA_CORE.search(path.name)]
    modules = [path for path in libraries if path.name.startswith("_core.")]
    if [path.relative_to(folder).parent.as_posix() for path in modules] != ["pyrdma"]:
        found.append(f"the native module is not there once: {modules}")
    for path in libraries:
        found += [f"{path.name}: {text}" for text in _of_library(path)]
    return found


def _of_library(path: Path) -> list[str]:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", _output("readelf", "--dynamic", path))
    found = [f"needs {name}" for name in needed if name not in NEEDED]
    symbols = _output("nm", "--dynamic", path)
    found += [f"has the symbol {match[0].strip()}" for match in _SYMBOL.finditer(symbols)]
    found += [f"contains code with {text.decode()}" for text in _TEXTS if text in path.read_bytes()]
    newer = {match[1] for match in _NEWER.finditer(_output("objdump", "-d", path))}
    if newer:
        found.append(f"has instructions above x86-64-v2: {', '.join(sorted(newer)[:5])}")
    return found


def _output(*command: str | Path) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout
