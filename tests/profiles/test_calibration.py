"""Simulated micro-benchmarks reproduce the calibration claims of their profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments._needs import Needs
from pyrdma import claims, registry
from pyrdma.claims import Claim, deciders, judge
from pyrdma.data import Data
from pyrdma.decide import NotEvaluated, ProfileValue
from pyrdma.experiment import Experiment

# Calibration claims that an experiment of the tree decides, by the experiment.
BY_EXPERIMENT: dict[str, list[str]] = {}
for _claim, _experiment in deciders().items():
    if claims.load()[_claim].role == "calibration":
        BY_EXPERIMENT.setdefault(_experiment.id, []).append(_claim)


@pytest.mark.parametrize("name", sorted(BY_EXPERIMENT))
def test_calibration_claims_hold(name: str, tmp_path: Path) -> None:
    experiment = registry.load(name)
    data: Data | None = None
    judged = 0
    for claim_id in BY_EXPERIMENT[name]:
        claim = claims.load()[claim_id]
        decider = experiment.decides[claim_id]
        try:
            if isinstance(decider, ProfileValue):
                verdict = judge(claim, decider.read(experiment.profile, claim))
            else:
                data = data or measured(experiment, tmp_path)
                verdict = judge(claim, decider(data, claim))
        except Needs:
            continue
        except NotEvaluated as reason:
            pytest.fail(f"{claim_id}: {reason}")
        judged += 1
        assert verdict[0] == "held", f"{claim_id}: {expected(claim)}, measured {verdict[1:]}"
    assert judged


def measured(experiment: Experiment, out: Path) -> Data:
    """Run the quick points in the simulator."""
    from pyrdma.runs import Options, execute

    execute(experiment.id, Options(out=out, fabric="sim", jobs=1))
    import pandas as pd

    return Data(pd.read_parquet(out / experiment.id / "sim" / "results.parquet"))


def expected(claim: Claim) -> str:
    return f"expected {claim.value} {claim.unit} within {claim.tolerance:.0%}"
