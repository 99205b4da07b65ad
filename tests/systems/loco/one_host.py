"""A program for a Soft-RoCE guest: LOCO's workloads on three nodes."""

from __future__ import annotations

from typing import Any

import pyrdma as rd
from pyrdma import workload


def main() -> None:
    """Run LOCO's workloads on three nodes; each fails natively if an increment or a key is lost."""
    small: dict[str, Any] = {"threads": 1, "polling": "callers", "warmup_ns": 0}
    loads = {
        "barrier": workload.LocoBarrier(polling="callers", warmup_ns=0),
        "critical_section": workload.LocoLock(**small),
        "transaction": workload.LocoTransactions(accounts=300, **small),
        "lookup": workload.LocoYcsb(
            window=3, keys=300, reads=0.4, inserts=0.2, removes=0.2, locks=64, **small
        ),
    }
    with rd.Cluster.local(nodes=3, fabric="verbs", mode="process") as cluster:
        for latency, load in loads.items():
            found = cluster.run(load, duration_s=0.3).latency(latency)
            assert found.count > 10, latency
            print(f"{load.native}: {found.count}, median {found.percentile(50) / 1e3:.0f} us")
    print("all good")


if __name__ == "__main__":
    main()
