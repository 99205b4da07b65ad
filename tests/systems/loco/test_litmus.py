"""Property L8: LOCO's objects never show a weak outcome; raw weak memory does."""

from __future__ import annotations

import pyrdma as rd
from pyrdma import workload

WORDS = 72  # of the 81 shapes: those without a value longer than a word


def test_loco_shows_nothing_that_is_late_where_raw_operations_do() -> None:
    with rd.Cluster.sim(nodes=4, profile="cx5", memory="weak", seed=1) as cluster:
        result = cluster.run(workload.LocoLitmus(rounds=300))
        raw = cluster.run(workload.Litmus(rounds=300))
    assert result.value("shapes") == WORDS
    assert result.value("rounds") >= 300 * WORDS
    assert result.value("beyond") == 0
    shapes = {s.metric.split("|")[1] for s in result.samples if s.metric.startswith("outcome|")}
    late = {s.metric for s in raw.samples if "|late|" in s.metric and s.value > 0}
    assert len({name for name in late if name.split("|")[1] in shapes}) > 10
    # The threads run concurrently: some shapes show more than one outcome.
    outcomes = [s for s in result.samples if s.metric.startswith("outcome|")]
    assert len(outcomes) > 1.5 * WORDS
