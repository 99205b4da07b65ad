"""The provider for real NICs on machines without: rdma-core absent or broken, or no device."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma import devices
from pyrdma._native import native
from pyrdma.devices import Wish
from tests.errors import raises, unnamed
from tests.harness.support import has_provider, without_rdma_core

SHM_WORKS = """
import pyrdma as rd
from pyrdma import devices, workload
assert devices.problem()
load = workload.VerbsLoad(op="read", size=8)
with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
    assert cluster.run(load, duration_s=0.01).value("rate") > 0
with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
    assert cluster.run(load, duration_s=1e-5).value("rate") > 0
try:
    rd.Cluster.local(nodes=2, fabric="verbs")
except rd.Unavailable as error:
    assert devices.problem() in str(error)
    print(error)
"""


NO_DEVICE = """
import pyrdma as rd
from pyrdma import devices
assert not devices.problem()
assert devices.entries() == []
try:
    rd.Cluster.local(nodes=2, fabric="verbs")
except rd.Unavailable as error:
    print(error)
"""


NO_CANDIDATE = """
import pyrdma as rd
from pyrdma import devices
[entry] = devices.entries()
assert entry.device == "efa_0" and "RC" in entry.problem
for address in ("", "efa_0"):
    try:
        devices.choose(devices.Wish.parse(address))
    except rd.Unavailable as error:
        print(error)
    else:
        raise AssertionError("it was chosen")
"""


ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"

INSTEAD = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("pyrdma._core", {path!r})
sys.modules["pyrdma._core"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["pyrdma._core"])
"""


def python(code: str, libraries: Path) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_provider = pytest.mark.skipif(
    not has_provider(), reason="built without the headers of rdma-core"
)
LIBRARIES = {"libibverbs.so.1": "ibv_", "librdmacm.so.1": "rdma_"}


def needed_symbols() -> dict[str, dict[str, str]]:
    """Return the version of each symbol that the provider opens, by library."""
    header = (ROOT / "native/fabric/verbs/ib/library.h").read_text()
    found: dict[str, dict[str, str]] = {library: {} for library in LIBRARIES}
    for name, version in re.findall(r'X\((\w+), "([\w.]+)"\)', header):
        library = "libibverbs.so.1" if version.startswith("IBVERBS") else "librdmacm.so.1"
        found[library][LIBRARIES[library] + name] = version
    return found


DATAGRAMS_ALONE = """
#include <errno.h>
static struct { void *ops[2]; int node, transport; char name[4096]; } device = {{0}, 7, 4, "efa_0"};
static char object[4096];
void *ibv_get_device_list(int *n) { static void *all[2] = {&device}; *n = 1; return all; }
char *ibv_get_device_name(void *unused) { return device.name; }
void *ibv_open_device(void *which) { return object; }
void *ibv_alloc_pd(void *context) { return object; }
void *ibv_create_cq(void *context, int n, void *own, void *channel, int vector) { return object; }
void *ibv_create_qp(void *domain, char *wanted) {
  errno = EOPNOTSUPP;
  return *(int *)(wanted + 52) == 4 ? object : 0;  /* qp_type, IBV_QPT_UD */
}
"""
"""A device like an EFA without its vendor's interface: it makes only queue pairs of datagrams."""


def pretend(folder: Path, library: str, symbols: dict[str, str], device: str = "") -> None:
    """Make a library of these symbols that has no device, or the one that the text in C has."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to make such a library")
    listing = "void *ibv_get_device_list(int *n) { static void *none[1]; *n = 0; return none; }\n"
    made = device or listing
    rest = [f"long {name}(void) {{ return 0; }}\n" for name in symbols if f"{name}(" not in made]
    (folder / "fake.c").write_text("".join([*rest, made if len(rest) < len(symbols) else ""]))
    versions = [
        f"{version} {{ global: {'; '.join(n for n in symbols if symbols[n] == version)}; }};\n"
        for version in sorted(set(symbols.values()))
    ]
    (folder / "versions").write_text("".join(versions))
    words = ["-shared", "-fPIC", "-o", library, "fake.c", "-Wl,--version-script=versions"]
    subprocess.run([compiler, *words], cwd=folder, check=True)


@needs_provider
@pytest.mark.parametrize("name", ["libibverbs.so.1", "librdmacm.so.1"])
def test_without_rdma_core_all_but_this_provider_works(name: str, tmp_path: Path) -> None:
    if name == "librdmacm.so.1" and devices.problem():
        pytest.skip("libibverbs is not here, and the loader needs it first")
    without_rdma_core(tmp_path, name)
    said = python(SHM_WORKS, tmp_path)
    assert unnamed(said, name, "libibverbs1", "ibverbs-providers", "librdmacm1") == []


@needs_provider
def test_a_symbol_that_is_missing_is_named(tmp_path: Path) -> None:
    pretend(tmp_path, "libibverbs.so.1", {"ibv_get_device_list": "IBVERBS_1.1"})
    said = python(SHM_WORKS, tmp_path)
    assert unnamed(said, "libibverbs.so.1", "ibv_free_device_list", "IBVERBS_1.1") == []


@pytest.mark.skipif(
    not (BUILD / "CMakeCache.txt").is_file() or shutil.which("cmake") is None,
    reason="not built here; sh tests/run.sh python builds it",
)
def test_a_build_without_the_headers_has_all_but_this_provider(tmp_path: Path) -> None:
    done = subprocess.run(
        ["cmake", "--build", BUILD, "--target", "without_verbs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    [module] = (BUILD / "native/without_verbs").glob("_core*")
    said = python(INSTEAD.format(path=str(module)) + SHM_WORKS, tmp_path)
    headers = ("infiniband/verbs.h", "infiniband/mlx5dv.h", "rdma/rdma_cma.h")
    assert unnamed(said, *headers, "libibverbs-dev", "librdmacm-dev") == []


def test_one_build_serves_machines_with_and_without_rdma_core() -> None:
    reader = shutil.which("readelf")
    if reader is None:
        pytest.skip("no readelf here to read the module; apt install binutils")
    module = str(native().__file__)  # type: ignore[attr-defined]
    said = subprocess.run([reader, "-d", module], capture_output=True, text=True, check=True).stdout
    assert "libc.so.6" in said
    assert not re.search(r"NEEDED.*(ibverbs|rdmacm|mlx)", said)


@needs_provider
def test_without_a_device_it_says_how_to_get_one(tmp_path: Path) -> None:
    for library, symbols in needed_symbols().items():
        assert len(symbols) > 10, library
        pretend(tmp_path, library, symbols)
    said = python(NO_DEVICE, tmp_path)
    assert unnamed(said, "verbs", "rdma_rxe") == []


@needs_provider
def test_a_device_without_reliable_connections_is_no_candidate(tmp_path: Path) -> None:
    for library, symbols in needed_symbols().items():
        is_verbs = library.startswith("libibverbs")
        pretend(tmp_path, library, symbols, DATAGRAMS_ALONE if is_verbs else "")
    said = python(NO_CANDIDATE, tmp_path)
    assert unnamed(said, "efa_0", "RC") == []
    said = python("from pyrdma.commands.main import app; app(['doctor', '--json'])", tmp_path)
    [line] = [check for check in json.loads(said) if check["name"] == "fabric verbs"]
    assert not line["ok"]
    assert unnamed(line["found"], "efa_0", "RC") == []
    assert "rdma_rxe" not in line["remedy"]


def test_the_doctor_knows_the_fabric(tmp_path: Path) -> None:
    without_rdma_core(tmp_path)
    said = python("from pyrdma.commands.main import app; app(['doctor', '--json'])", tmp_path)
    lines = {check["name"]: check for check in json.loads(said)}
    assert lines["fabric shm"]["ok"]
    assert not lines["fabric verbs"]["ok"]
    package = "libibverbs1" if has_provider() else "libibverbs-dev"
    assert unnamed(lines["fabric verbs"]["found"], package) == []


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("", Wish()),
        ("mlx5_0", Wish("mlx5_0")),
        ("mlx5_0:2", Wish("mlx5_0", 2)),
        ("mlx5_0:2:3", Wish("mlx5_0", 2, 3)),
        ("10.10.1.1", Wish(address="10.10.1.1")),
        ("fe80::1:2:3", Wish(address="fe80::1:2:3")),
    ],
)
def test_wishes_in_words(text: str, wish: Wish) -> None:
    assert Wish.parse(text) == wish


def test_a_wish_that_is_none() -> None:
    with raises(rd.InvalidArgument, "mlx5_0:one", "mlx5_0:1:3"):
        Wish.parse("mlx5_0:one")
