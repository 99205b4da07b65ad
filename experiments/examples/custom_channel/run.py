"""Build the channel of sharded_counter.cc against the installed headers, and run it in two worlds.

Run it: python experiments/examples/custom_channel/run.py
It needs a C++ compiler, CMake, and Ninja or Make.
"""

import importlib.resources
import shutil
import subprocess
import tempfile
from pathlib import Path

import pyrdma as rd

here = Path(__file__).resolve().parent
with tempfile.TemporaryDirectory() as build:
    package = importlib.resources.files("pyrdma") / "lib" / "cmake" / "pyrdma"
    configure = ["cmake", "-S", str(here), "-B", build, f"-Dpyrdma_DIR={package}"]
    configure += ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build], check=True, stdout=subprocess.DEVNULL)
    load = rd.workload.Custom(f"{build}/libcustom_channel.so:count_together", {"adds": 1000})
    for cluster in (
        rd.Cluster.sim(nodes=4, profile="c6525-25g", memory="weak"),
        rd.Cluster.local(nodes=2),
    ):
        with cluster:
            result = cluster.run(load)
            sums = result.frame.query("metric == 'sum'")["value"]
            print(f"{cluster.fabric}: every node saw {sums.unique().tolist()}")
