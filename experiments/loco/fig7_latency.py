"""The control loop of DC/DC converters at several latencies of its messages (appendix B).

The paper says that the output converges only if each control and feedback message takes less than
40 us (B.1). It cannot vary the latency of its links, so it lets the controller's period stand in
for it (`loco/fig7`). The simulator can: the switch delays each message longer. The controller's
period is that of the converters, 10 us, so that the latency is the main delay in the loop.

A latency is not a period. A controller with a short period takes small steps, and so it tolerates a
delay. But a latency counts twice, once in each direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.loco import fig7
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PERIOD = 10  # us, of the controller and of the converters
DELAYS = [0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 30, 40, 50]


def measure(point: Point) -> Any:
    """Measure the time of a message, and how the output of the loops settles."""
    testbed = Profile.load(point.profile, point.overrides).values()
    slower = {"switch.latency_ns": testbed["switch.latency_ns"] + 1e3 * point["delay"]}
    message = workload.VerbsLoad(op="write", size=8, mode="latency", iterations=20)
    loops = workload.LocoPower(period_us=PERIOD, converter_us=PERIOD)
    with point.cluster(nodes=2, overrides=slower) as cluster:
        round_trip = cluster.run(message, duration_s=0.1).latency("write").percentile(50)
    with point.cluster(nodes=1 + fig7.CONVERTERS, overrides=slower) as cluster:
        result = cluster.run(loops, duration_s=point.duration(20e-3, 1.0), timeout_s=7200)
    settling = ("start_peak", "ripple")
    found = {s.metric: (s.value, s.unit) for s in result.samples if s.metric in settling}
    return {"message_latency": (round_trip / 2, "ns"), **found}


def required_latency(data: Data, claim: Claim) -> Decision:
    """Take the longest latency of a message up to which the output settles at every latency."""
    ripple = data.series("ripple", "delay")
    latency = data.series("message_latency", "delay", claim.unit)
    unsettled = [x for x in ripple.index if ripple[x] >= fig7.STABLE]
    settled = [x for x in ripple.index if not unsettled or x < unsettled[0]]
    if not settled:
        return Decision(False, None, "the output does not settle at the testbed's own latency")
    onset = f"not at {latency[unsettled[0]]:.1f} us" if unsettled else "at all that were measured"
    return Decision(None, float(latency[settled[-1]]), f"settles at this latency, {onset}")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw how the output settles against the latency of a message."""
    fig, ax = figures.new()
    latency = data.series("message_latency", "delay", "us")
    names = {"ripple": "ripple, settled", "start_peak": "peak at the start"}
    for number, (metric, name) in enumerate(names.items()):
        series = data.series(metric, "delay")
        ax.plot(latency.to_list(), series.to_list(), label=name, **figures.style_of(number))
    required = claims["loco/fig7_latency_requirement"].number
    if required is not None:
        ax.axvline(
            required, color="black", linestyle=":", linewidth=0.8, label=f"paper: {required:g} µs"
        )
    ax.set(xlabel="Latency of a message (µs)", ylabel="Times the wanted voltage")
    ax.legend()
    return fig


experiment = Experiment(
    id="loco/fig7_latency",
    title="DC/DC converters under one controller: settling by latency of messages",
    profile="c6525-25g",
    axes={"delay": Axis(DELAYS, full=list(range(51)), unit="us")},
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "shared memory has no switch whose latency could be varied",
        "verbs": "the latency of a real switch cannot be varied",
    },
    decides={"loco/fig7_latency_requirement": required_latency},
)
