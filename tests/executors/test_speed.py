"""Two cores measure simulated points nearly twice as fast as one, by every executor.

`sh tests/run.sh deploy` runs this test; two cores must be idle.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyrdma import executors
from pyrdma.runs import Options, execute
from tests.executors import simulated_experiment, slurm_bed


@pytest.mark.skipif(
    os.environ.get("PYRDMA_SLURM") != "1", reason="four minutes: sh tests/run.sh deploy"
)
def test_each_executor_is_at_least_1_7_times_as_fast_as_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(name: str, jobs: int) -> float:
        out = tmp_path / f"{name}-{jobs}"
        began = time.monotonic()
        with executors.make(name, jobs, out) as executor:
            outcome = execute(simulated_experiment.__file__, Options(out=out), executor).outcome
        took = time.monotonic() - began
        assert (outcome.measured, outcome.failed) == (12, {})
        return took

    serial = seconds("processes", 1)
    times = {name: seconds(name, 2) for name in ("processes", "dask")}
    assert not slurm_bed.missing()
    with slurm_bed.slurm_bed() as made:
        monkeypatch.setenv("SLURM_CONF", made["SLURM_CONF"])
        times["slurm"] = seconds("slurm", 2)
    ratios = {name: serial / took for name, took in times.items()}
    print(f"one process: {serial:.1f} s; " + ", ".join(f"{n} {r:.2f}x" for n, r in ratios.items()))
    assert serial > 40, "the points are too short to tell"
    assert min(ratios.values()) >= 1.7, ratios
