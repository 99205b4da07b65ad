"""Simulated micro-benchmarks reproduce the calibration claims of their profiles.

A claim may miss, where its experiment states the reason (`Experiment.misses`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments._needs import Needs, Undecidable
from pyrdma import claims, judging, registry
from pyrdma.claims import deciders, judge
from pyrdma.data import Data
from pyrdma.decide import Decision, NotEvaluated, ProfileValue
from pyrdma.experiment import Experiment

EMPTY = pd.DataFrame()

# Calibration claims that an experiment of the tree decides, by the experiment. Left out are claims
# that no run can decide, which state why. The sweeps of micro-benchmarks have a test of their own
# (tests/experiments/test_nic.py).
BY_EXPERIMENT: dict[str, list[str]] = {}
for _claim, _experiment in deciders().items():
    if isinstance(_experiment.decides[_claim], Undecidable) or _claim.startswith("nic/"):
        continue
    if claims.load()[_claim].role == "calibration":
        BY_EXPERIMENT.setdefault(_experiment.id, []).append(_claim)


@pytest.mark.parametrize("name", sorted(BY_EXPERIMENT))
def test_calibration_claims_hold_or_have_a_reason(name: str, tmp_path: Path) -> None:
    experiment = registry.load(name)
    need_data = [
        claim
        for claim in BY_EXPERIMENT[name]
        if not isinstance(experiment.decides[claim], ProfileValue)
    ]
    data = measured(experiment, tmp_path) if need_data and experiment.measure else None
    judged, complaints = check(experiment, data)
    assert judged
    assert not complaints, "\n".join(complaints)


def check(experiment: Experiment, data: Data | None) -> tuple[int, list[str]]:
    """Return the number of judged calibration claims, and complaints about their misses."""
    judged, complaints = 0, []
    for name in BY_EXPERIMENT[experiment.id]:
        claim = claims.load()[name]
        try:
            verdict, *found = judge(claim, judging.decided(claim, experiment, data))
        except Needs:
            continue
        except NotEvaluated as reason:
            complaints.append(f"{name}: {reason}")
            continue
        judged += 1
        if verdict == "missed" and name not in experiment.misses:
            complaints.append(
                f"{name}: expected {claim.value} {claim.unit} within {claim.tolerance:.0%}, "
                f"measured {found}; correct the profile, or state in `misses` why it misses"
            )
        if verdict == "held" and name in experiment.misses:
            complaints.append(f"{name} holds, measured {found}; remove its reason from `misses`")
    return judged, complaints


def measured(experiment: Experiment, tmp_path: Path) -> Data:
    """Run the quick points in the simulator, unless other tests of this run have (tests/run.sh)."""
    from pyrdma.runs import Options, execute

    out = Path(os.environ.get("PYRDMA_TEST_RESULTS") or tmp_path)
    execute(experiment.id, Options(out=out, fabric="sim"))
    return Data(pd.read_parquet(out / experiment.id / "sim" / "results.parquet"))


@pytest.mark.parametrize(
    ("holds", "misses", "complaint"),
    [
        (True, {}, ""),
        (False, {}, "correct the profile"),
        (False, {"tailwind/cal_cores": "the model lacks hyper-threads"}, ""),
        (True, {"tailwind/cal_cores": "the model lacks hyper-threads"}, "remove its reason"),
    ],
)
def test_a_miss_needs_a_reason_that_is_not_stale(
    holds: bool, misses: dict[str, str], complaint: str
) -> None:
    table = registry.load("tailwind/table1")
    decides = {**table.decides, "tailwind/cal_cores": lambda *_: Decision(holds)}
    _, complaints = check(replace(table, decides=decides, misses=misses), Data(EMPTY))
    assert bool(complaints) == bool(complaint)
    assert all(complaint in text and "tailwind/cal_cores" in text for text in complaints)
