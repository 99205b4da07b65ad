"""An experiment without a cluster: a point's result is a hash; each run of it leaves a file."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrdma import Axis, Error, Experiment, Point, Row, figures
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> Any:
    """Return a rate that depends only on the point; fail where the test asks for it."""
    marks = os.environ.get("FAKE_MARKS")
    if marks:
        Path(marks, f"{point['n']}-{os.getpid()}-{time.monotonic_ns()}").touch()
    behaviour = point["behaviour"]
    if behaviour == "slow":
        time.sleep(0.25)
    elif behaviour == "dies" and point["n"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "fails" and point["n"] == 3:
        raise Error("n = 3 is not possible; choose another")
    digest = hashlib.sha256(f"{point['n']} {point.seed}".encode()).digest()
    noise = random.random() * 1e-4 if point.fabric == "shm" else 0.0
    rate = (1 + noise) * (1e6 * point["n"] + int.from_bytes(digest[:2], "big"))
    return [
        Row("rate", rate, "op/s", {"series": "fake"}),
        Row("rate", rate / 2, "op/s", {"series": "half"}),
    ]


def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw both series and one number of a paper."""
    figure: Figure
    figure, ax = figures.new()
    figures.line(ax, data, "rate", "n", by="series", unit="M req/s")
    figures.overlay(ax, [(claims["krcore/f10b_verbs_peak"], 4)], unit="M req/s")
    ax.set(xlabel="n", ylabel="M requests/s")
    ax.legend()
    return figure


experiment = Experiment(
    id="fake/numbers",
    title="Numbers out of a hash",
    profile="cx5",
    axes={
        "behaviour": Axis(["good"]),
        "n": Axis([1, 2, 3, 4], full=list(range(1, 13)), unit="count"),
    },
    measure=measure,
    figure=draw,
    fabrics=("sim", "shm"),
    target="rate",
    why_not={"verbs": "there is nothing to send"},
)
