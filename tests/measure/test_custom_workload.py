"""A user's own workload: built against the installed headers and library, loaded by name."""

import importlib.metadata
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma._core import measure
from tests.errors import raises

SOURCE = r"""
#include <cstring>
#include "base/error.h"
#include "measure/workload.h"

namespace {
using namespace pyrdma;

class Greeting final : public measure::Workload {
 public:
  std::span<const measure::ParameterSpec> parameters() const override {
    static const std::vector<measure::ParameterSpec> specs = {
        {"factor", std::int64_t{2}, "count", "what the node's number is multiplied by", 1, 10}};
    return specs;
  }
  void run(Env& env, const measure::Params& params, measure::Recorder& recorder) override {
    const Time begin = env.now();
    env.work(1000);
    recorder.histogram("work").record(env.now() - begin);
    recorder.add("product", "count", static_cast<double>(env.node() * params.integer("factor")));
    if (params.integer("factor") == 9) throw Error(ErrorCode::kUnavailable, "nine is not served");
  }
};
}  // namespace

extern "C" __attribute__((visibility("default"))) pyrdma::measure::Workload*
pyrdma_make_workload(const char* name) {
  return std::strcmp(name, "greeting") == 0 ? new Greeting : nullptr;
}
"""


def installed(name: str) -> Path:
    """Return where the installation put a file."""
    package = Path(rd.__file__).parent
    found = [package / "lib" / name, package / "include" / "pyrdma" / name]
    try:
        files = importlib.metadata.files("pyrdma") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found += [Path(str(file.locate())) for file in files if str(file).endswith(name)]
    return next(path for path in found if path.exists())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: sudo apt-get install -y g++")
    folder = tmp_path_factory.mktemp("greeting")
    source = folder / "greeting.cc"
    source.write_text(SOURCE)
    headers = installed("measure/workload.h").parent.parent
    made = folder / "greeting.so"
    command = [compiler, "-std=c++20", "-shared", "-fPIC", "-o", str(made), str(source)]
    command += [f"-I{headers}", str(installed("libpyrdma_native.a")), "-lpthread", "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return made


def test_it_runs_on_every_node_with_its_parameters(library: Path) -> None:
    with rd.Cluster.sim(nodes=3, profile="cx5") as cluster:
        native: Any = cluster._open
        columns = measure.run_workload(native, f"{library}:greeting", {"factor": 5})
    assert columns["metric"] == ["product"] * 3
    assert columns["value"] == [0.0, 5.0, 10.0]
    assert len(columns["histograms"]["encoded"]) == 3


def test_its_errors_are_ours(library: Path) -> None:
    with rd.Cluster.sim(nodes=2, profile="cx5") as cluster:
        with raises(rd.InvalidArgument, "factor", 11, 1, 10):
            cluster.run(rd.workload.Custom(f"{library}:greeting", {"factor": 11}))
        with raises(rd.InvalidArgument, "salute"):
            cluster.run(rd.workload.Custom(f"{library}:salute"))
        with raises(rd.Unavailable, "nine is not served"):
            cluster.run(rd.workload.Custom(f"{library}:greeting", {"factor": 9}))
