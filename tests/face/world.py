"""The objects on which good calls are made."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

import pyrdma as rd
from pyrdma import claims, figures, result, workload
from tests.harness.support import FAKE


class World:
    """The objects that the good calls use, made at their first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._coroutines: list[Coroutine[Any, Any, Any]] = []

    def coroutine(self, made: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Return the coroutine, which need not run."""
        self._coroutines.append(made)
        return made

    def close(self) -> None:
        """End the clusters that were made, and the drawings."""
        plt.close("all")
        for coroutine in self._coroutines:
            coroutine.close()
        for cluster in ("cluster", "four_nodes", "three_nodes", "processes", "threads"):
            if cluster in vars(self):
                vars(self)[cluster].close()

    def stored(self) -> Path:
        """Return a results folder with one point."""
        out = self.folder / "stored"
        rd.run(FAKE, set={"n": 1}, fabric="shm", out=out)
        return out

    @cached_property
    def cluster(self) -> Any:
        return rd.Cluster.sim(nodes=2, profile="cx5", seed=1)

    @cached_property
    def four_nodes(self) -> Any:
        return rd.Cluster.sim(nodes=4, profile="cx5", seed=1)

    @cached_property
    def three_nodes(self) -> Any:
        """A cluster none of whose nodes is ever killed."""
        return rd.Cluster.sim(nodes=3, profile="cx5", seed=1)

    @cached_property
    def processes(self) -> Any:
        return rd.Cluster.local(nodes=1)

    @cached_property
    def threads(self) -> Any:
        return rd.Cluster.local(nodes=1, mode="thread")

    @cached_property
    def device(self) -> Any:
        return self.cluster.devices[0]

    @cached_property
    def domain(self) -> Any:
        return self.device.protection_domain()

    @cached_property
    def queue(self) -> Any:
        return self.device.completion_queue(16)

    @cached_property
    def pair(self) -> Any:
        return self.domain.queue_pair(self.queue)

    @cached_property
    def connected(self) -> Any:
        self.pair.connect(self.pair.address)
        return self.pair

    @cached_property
    def region(self) -> Any:
        return self.domain.allocate(64)

    @cached_property
    def sge(self) -> Any:
        return self.region.sge(0, 8)

    @cached_property
    def handle(self) -> Any:
        return self.domain.address_handle(self.pair.address)

    @cached_property
    def data(self) -> Any:
        return rd.Data(self.frame)

    @cached_property
    def frame(self) -> Any:
        row = {"metric": "rate", "value": 1.0, "unit": "op/s", "node": -1, "thread": -1, "seed": 1}
        more = {"fabric": "sim", "clock": "virtual", "profile": "cx5", "experiment": "a/b"}
        return pd.DataFrame([{**row, **more, "repetition": n, "size": 8} for n in range(2)])

    @cached_property
    def drawing(self) -> Any:
        return figures.new()

    @cached_property
    def claim(self) -> Any:
        return next(c for c in claims.load().values() if isinstance(c.value, float))

    @cached_property
    def result(self) -> Any:
        histogram = self.cluster.run(workload.Memcpy(iterations=1)).histograms["memcpy"]
        return rd.Result([result.Sample(0, 0, "rate", 1.0, "op/s")], {"memcpy": histogram})

    @cached_property
    def experiment(self) -> Any:
        return rd.Experiment(
            id="a/b", title="", profile="cx5", measure=None, axes={"size": rd.Axis([8])}
        )

    def file(self, name: str, content: bytes = b"") -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path
