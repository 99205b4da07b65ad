"""A program for a guest: one point of each experiment of the fabric; the host draws the figures.

Drawing (pandas and matplotlib) would take an emulated CPU two minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyrdma import registry
from pyrdma.experiment import Experiment, Value
from pyrdma.sweep import Sweep

_ONE: dict[str, Value] = {"transport": "rc", "op": "write", "size": 64}
POINTS: dict[str, dict[str, Value]] = {
    "fabric/latency": _ONE,
    "fabric/bandwidth": {**_ONE, "depth": 64},
    "fabric/rate": _ONE,
}
"""The settings of each experiment's only point."""


def measured_once(name: str, load: Callable[[str], Experiment] = registry.load) -> Experiment:
    """Return the experiment without repetitions."""
    return replace(load(name), max_repetitions=1)


def main(share: Path) -> None:
    for name, settings in POINTS.items():
        experiment = measured_once(name)
        points = list(experiment.points(fabric="verbs", settings=settings))
        outcome = Sweep(name, experiment, points, share / "results").run()
        assert not outcome.failed, outcome.failed
        print(f"{name}: {outcome.measured} measured", flush=True)
    print("all good")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
