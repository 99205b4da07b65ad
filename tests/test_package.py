"""The installed package is complete, and a failing build names the packages to install."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.errors import unnamed

ROOT = Path(__file__).resolve().parents[1]

WORKLOAD = """
#include "measure/workload.h"

namespace {
struct Nothing : pyrdma::measure::Workload {
  std::span<const pyrdma::measure::ParameterSpec> parameters() const override { return {}; }
  void run(pyrdma::Env&, const pyrdma::measure::Params&,
           pyrdma::measure::Recorder& recorder) override {
    recorder.histogram("nothing").record(1);
  }
};
}  // namespace

extern "C" __attribute__((visibility("default"))) pyrdma::measure::Workload* pyrdma_make_workload(
    const char*) {
  return new Nothing;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(mine LANGUAGES CXX)
find_package(pyrdma REQUIRED)
add_library(mine MODULE mine.cc)
target_link_libraries(mine PRIVATE pyrdma::native)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def installed(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built_wheel) as archive:
        archive.extractall(site)
    return site


@pytest.mark.slow
def test_wheel_holds_data_and_headers(installed: Path) -> None:
    package = installed / "pyrdma"

    def files_of(folder: Path, pattern: str) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob(pattern)}

    assert (package / "py.typed").exists()
    assert len(list(package.glob("_core.*.so"))) == 1
    assert files_of(package / "_core", "*.pyi") == files_of(ROOT / "pyrdma/_core", "*.pyi")
    assert files_of(package / "profiles", "*.toml") == files_of(ROOT / "pyrdma/profiles", "*.toml")
    assert files_of(package, "*.mplstyle") == files_of(ROOT / "pyrdma", "*.mplstyle")
    assert files_of(package, "*.html") == files_of(ROOT / "pyrdma", "*.html")
    for pattern in ("*.py", "*.yaml", "*.cc", "*.c"):
        assert files_of(package / "experiments", pattern) == files_of(ROOT / "experiments", pattern)
    headers = files_of(package / "include" / "pyrdma", "*.h")
    assert {"env/env.h", "fabric/fabric.h", "measure/workload.h"} <= headers
    assert not {name for name in headers if name.startswith("bindings/")}


@pytest.mark.slow
def test_wheel_runs_alone(installed: Path, tmp_path: Path) -> None:
    # -S leaves out the hook of the editable installation, so Python imports the unpacked wheel.
    libraries = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    script = (
        f"import sys; sys.path[:0] = {[str(installed)]!r}; sys.path += {libraries!r}\n"
        "import pyrdma, pyrdma._core; print(pyrdma.__file__, pyrdma._core.__file__)\n"
    )
    result = run(sys.executable, "-S", "-c", script, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert all(path.startswith(str(installed)) for path in result.stdout.split())


@pytest.mark.slow
def test_own_workload_builds_against_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "mine.cc").write_text(WORKLOAD)
    configure = run(
        *("cmake", "-G", "Ninja", "-B", "build", "."),
        f"-Dpyrdma_DIR={installed}/pyrdma/lib/cmake/pyrdma",
        cwd=tmp_path,
    )
    assert configure.returncode == 0, configure.stdout + configure.stderr
    build = run("cmake", "--build", "build", cwd=tmp_path)
    assert build.returncode == 0, build.stdout + build.stderr
    library = ctypes.CDLL(str(tmp_path / "build" / "libmine.so"), mode=os.RTLD_NOW)
    assert hasattr(library, "pyrdma_make_workload")


@pytest.mark.parametrize(
    ("flags", "package"),
    [
        (["-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON"], "libboost-context-dev"),
        (["-DPYRDMA_TESTS=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"], "libgtest-dev"),
        (
            ["-DPYRDMA_PYTHON=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON"],
            "python3-dev",
        ),
        (["-DCMAKE_CXX_COMPILER=CMAKE_CXX_COMPILER-NOTFOUND"], "g++"),
    ],
)
def test_missing_package_is_named_with_its_command(
    flags: list[str], package: str, tmp_path: Path
) -> None:
    result = run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DPYRDMA_PYTHON=OFF", *flags)
    assert result.returncode != 0
    assert unnamed(result.stderr, f"sudo apt-get install -y {package}") == []


def test_all_missing_packages_are_named_at_once(tmp_path: Path) -> None:
    result = run(
        *("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DPYRDMA_PYTHON=OFF"),
        *("-DPYRDMA_TESTS=ON", "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON"),
        "-DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON",
    )
    assert "sudo apt-get install -y libboost-context-dev libgtest-dev" in result.stderr


@pytest.fixture
def no_rdma_headers(tmp_path: Path) -> Path:
    """A folder of headers that makes rdma-core's headers unusable when it is searched first."""
    for header in ("infiniband/verbs.h", "infiniband/mlx5dv.h", "rdma/rdma_cma.h"):
        path = tmp_path / "headers" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#error not here\n")
    return tmp_path / "headers"


def test_a_missing_header_of_rdma_core_costs_the_provider_or_is_an_error(
    no_rdma_headers: Path, tmp_path: Path
) -> None:
    configure = ("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path / "b", "-DPYRDMA_PYTHON=OFF")
    result = run(*configure, f"-DCMAKE_CXX_FLAGS=-I{no_rdma_headers}")
    assert result.returncode == 0, result.stderr
    packages = "sudo apt-get install -y libibverbs-dev librdmacm-dev"
    assert unnamed(result.stderr, "Warning", "rdma/rdma_cma.h", packages) == []
    silent = run(*configure, "-DPYRDMA_VERBS=OFF")
    assert (silent.returncode, silent.stderr) == (0, "")
    result = run(*configure, "-DPYRDMA_VERBS=ON")
    assert result.returncode != 0
    assert "sudo apt-get install -y libibverbs-dev librdmacm-dev" in result.stderr
    assert "infiniband/mlx5dv.h" in result.stderr
    # A package installed later is found, although the build folder recorded its absence.
    shutil.rmtree(no_rdma_headers)
    assert run(*configure).returncode == 0


def test_unknown_verbs_option_is_refused(tmp_path: Path) -> None:
    result = run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DPYRDMA_VERBS=maybe")
    assert result.returncode != 0
    assert unnamed(result.stderr, "PYRDMA_VERBS", "maybe", "ON", "OFF", "AUTO") == []


def test_the_readme_commands_want_the_headers_of_rdma_core(
    no_rdma_headers: Path, tmp_path: Path
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\nexec c++ -I{no_rdma_headers} "$@"\n')
    compiler.chmod(0o755)
    script = f"root=.; CXX={compiler}; . tests/setup_env.sh; missing_of $build_packages"
    result = run("sh", "-euc", script)
    assert result.stdout.split() == ["libibverbs-dev", "librdmacm-dev"], result.stderr
    assert "PYRDMA_VERBS=ON" in (ROOT / "tests/setup_env.sh").read_text()


def test_unknown_sanitizer_is_refused(tmp_path: Path) -> None:
    result = run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DPYRDMA_SANITIZE=memory")
    assert result.returncode != 0
    assert unnamed(result.stderr, "memory") == []


def test_scripts_are_posix() -> None:
    shell = shutil.which("dash")
    if shell is None:
        pytest.skip("dash is not installed")
    for script in (*ROOT.glob("tests/*.sh"), *ROOT.glob("experiments/*.sh")):
        result = run(shell, "-n", script)
        assert result.returncode == 0, result.stderr


def test_version_is_told_alike() -> None:
    import pyrdma

    assert importlib.metadata.version("pyrdma") == pyrdma.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == pyrdma.__version__


def test_licence_is_told_alike() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.lstrip().startswith("Apache License\n                           Version 2.0")
    assert importlib.metadata.metadata("pyrdma")["License-Expression"] == "Apache-2.0"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["license"] == "Apache-2.0"


def test_run_refuses_an_unknown_word() -> None:
    result = run("sh", "tests/run.sh", "everything")
    assert result.returncode != 0
    assert unnamed(result.stderr, "everything", "quick") == []


def test_module_loads_after_others_that_use_the_same_libraries() -> None:
    # pyarrow loads libstdc++ late. A module that needs static thread-local storage of it, as
    # Debian's libboost_context.a does in a part that pyrdma leaves out, then fails to load.
    result = run(sys.executable, "-c", "import pyarrow, pyrdma._core")
    assert result.returncode == 0, result.stderr
