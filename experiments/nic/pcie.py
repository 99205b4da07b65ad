"""Rates of DMA by size: requests to a NIC that only DMA engine and PCIe limit."""

from __future__ import annotations

from typing import Any

from experiments.nic import _load, _sweep
from pyrdma import Point

CLIENTS = 8


def measure(point: Point) -> Any:
    """Measure inbound READs, for which the server's NIC reads memory, or inbound WRITEs."""
    return _load.rate(
        point,
        nodes=1 + CLIENTS,
        op=point["direction"],
        size=point["size"],
        threads=4,
        depth=16,
        batch=16,
        signal_every=16,
        inline=0,
    )


CHART = _sweep.Chart(
    metric="rate",
    unit="Mop/s",
    x="size",
    xlabel="Size (B)",
    ylabel="DMA (M/s)",
    by="direction",
    names={"read": "DMA read", "write": "DMA write"},
    log="xy",
)

experiment = _sweep.experiment(
    "pcie",
    "Rates of DMA by size at PCIe 3.0 x8",
    "pcie_x8",
    measure,
    _sweep.lines("pcie", CHART),
)
