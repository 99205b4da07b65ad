"""The provider for real NICs where there is none: rdma-core absent or broken, or no device."""

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
from pyrdma import devices, provenance
from pyrdma._native import native
from pyrdma.devices import Wish

SHM_WORKS = """
import pyrdma as rd
from pyrdma import devices, workload
print(devices.problem())
load = workload.VerbsLoad(op="read", size=8)
with rd.Cluster.local(nodes=2, fabric="shm", mode="thread") as cluster:
    assert cluster.run(load, duration_s=0.01).value("rate") > 0
with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
    assert cluster.run(load, duration_s=1e-5).value("rate") > 0
try:
    rd.Cluster.local(nodes=2, fabric="verbs")
except rd.Unavailable as error:
    print(error)
"""


BUILD = Path(__file__).resolve().parents[2] / "build/release"

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


def built_with_provider() -> bool:
    core = native()
    return bool(core.ibverbs.has_provider())  # type: ignore[attr-defined]


needs_provider = pytest.mark.skipif(
    not built_with_provider(), reason="built without the headers of rdma-core"
)


@needs_provider
@pytest.mark.parametrize("name", ["libibverbs.so.1", "librdmacm.so.1"])
def test_without_rdma_core_all_but_this_provider_works(name: str, tmp_path: Path) -> None:
    if name == "librdmacm.so.1" and devices.problem():
        pytest.skip("libibverbs is not here, which is missed first")
    (tmp_path / name).touch()  # found first, and no library
    said = python(SHM_WORKS, tmp_path)
    assert said.count(f"cannot open {name}") == 2
    assert "apt install libibverbs1 ibverbs-providers librdmacm1" in said


@needs_provider
def test_a_symbol_that_is_missing_is_named(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to make such a library with")
    (tmp_path / "fake.c").write_text("void *ibv_get_device_list(int *n) { *n = 0; return 0; }\n")
    (tmp_path / "versions").write_text("IBVERBS_1.1 { global: ibv_get_device_list; local: *; };\n")
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-o",
            "libibverbs.so.1",
            "fake.c",
            "-Wl,--version-script=versions",
        ],
        cwd=tmp_path,
        check=True,
    )
    said = python(SHM_WORKS, tmp_path)
    assert said.count("libibverbs.so.1 has no symbol ibv_free_device_list") == 2
    assert "IBVERBS_1.1" in said


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
    assert said.count("no provider for real NICs") == 2
    assert "missing: infiniband/verbs.h infiniband/mlx5dv.h rdma/rdma_cma.h" in said
    assert "sudo apt-get install -y libibverbs-dev librdmacm-dev" in said


def test_one_build_serves_machines_with_and_without_rdma_core() -> None:
    reader = shutil.which("readelf")
    if reader is None:
        pytest.skip("no readelf here to look at the module with; apt install binutils")
    module = str(native().__file__)  # type: ignore[attr-defined]
    said = subprocess.run([reader, "-d", module], capture_output=True, text=True, check=True).stdout
    assert "libc.so.6" in said
    assert not re.search(r"NEEDED.*(ibverbs|rdmacm|mlx)", said)


def test_without_a_device_it_says_how_to_get_one() -> None:
    if provenance.rdma_devices():
        pytest.skip("a device is here")
    with pytest.raises(rd.Unavailable, match=r"rdma_rxe|rdma-core"):
        rd.Cluster.local(nodes=2, fabric="verbs")


def test_the_doctor_knows_the_fabric(tmp_path: Path) -> None:
    (tmp_path / "libibverbs.so.1").touch()
    said = python("from pyrdma.commands.main import app; app(['doctor', '--json'])", tmp_path)
    lines = {check["name"]: check for check in json.loads(said)}
    assert lines["fabric shm"]["ok"]
    assert not lines["fabric verbs"]["ok"]
    assert "install" in lines["fabric verbs"]["found"]


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
    with pytest.raises(rd.InvalidArgument, match="mlx5_0:1:3"):
        Wish.parse("mlx5_0:one")
