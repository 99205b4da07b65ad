"""The control loop of DC/DC converters at several periods: output voltage (appendix B, figure 7).

The paper runs each period for 5 s. The full mode does the same; the quick mode runs 20 ms of
virtual time, since transients last less than 2 ms and the rest repeats. The paper does not state
the parameters of the converters; native/systems/loco/power_controller.h derives parameters that are
stable up to 40 us. So the claims on the period hold by construction. `loco/fig7_latency` varies the
latency of messages, for which the period stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyrdma import Axis, Experiment, Point, Row, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision, by_construction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONVERTERS = 20
PERIODS = [10, 20, 30, 35, 40, 45, 50, 60, 80, 100]
DRAWN = (20, 40, 50, 60, 80)
STABLE = 0.01  # of the wanted voltage: ripple of an output that has settled
NAMED = 40  # us, the one period that the paper names
DERIVED = "the controller's gain is derived from stability up to 40 us"


def measure(point: Point) -> list[Row]:
    """Run the loops; make rows of ``voltage``, labelled with their time, from the trace."""
    load = workload.LocoPower(period_us=point["period"], converter_us=10)
    with point.cluster(nodes=1 + CONVERTERS) as cluster:
        result = cluster.run(load, duration_s=point.duration(20e-3, 5.0), timeout_s=7200)
    rows = []
    for sample in result.samples:
        if sample.metric.startswith("voltage/"):
            at = {"time_us": float(sample.metric.partition("/")[2]) / 1e3}
            rows.append(Row("voltage", sample.value, "V", at))
        elif sample.metric in ("start_peak", "ripple", "deviation"):
            rows.append(Row(sample.metric, sample.value, sample.unit))
    return rows


def stable_period(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Take the longest period up to which every measured period is stable."""
    ripple = data.series("ripple", "period").sort_index()
    stable = [int(p) for p in ripple.index if (ripple[ripple.index <= p] < STABLE).all()]
    if not stable:
        return Decision(False, None, "no period is stable")
    return Decision(None, float(max(stable)), f"ripple below {STABLE:.0%} of the wanted voltage")


def instability_grows(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the deviation grows with every longer period."""
    above = data.series("deviation", "period").sort_index()
    above = above[above.index > NAMED]
    text = ", ".join(f"{p:g} us {v:.2f}" for p, v in above.items())
    return Decision(bool(above.is_monotonic_increasing), text)


def transients(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the start exceeds twice the wanted voltage above 40 us, and never below."""
    peak = data.series("start_peak", "period").sort_index()
    text = ", ".join(f"{p:g} us {v:.2f}" for p, v in peak.items())
    holds = (peak[peak.index > NAMED] > 2).all() and (peak[peak.index <= NAMED] < 2).all()
    return Decision(bool(holds), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - the paper's have no numbers
    """Draw the voltage over time for some periods, and the deviation over all periods."""
    fig, panels = figures.new(len(DRAWN), 2, height=3.6, sharex="col", sharey="col")
    grid = panels[0][1].get_gridspec()
    for ax in panels[:, 1]:
        ax.remove()
    frame = data.select("voltage")
    for ax, period in zip(panels[:, 0], DRAWN, strict=True):
        rows = frame[frame["period"] == period].sort_values("time_us")
        ax.plot(
            rows["time_us"] / 1e3, rows["value"], color=figures.style_of(0)["color"], linewidth=1
        )
        ax.set_title(f"controller's period {period} µs", loc="right", pad=2)
    panels[len(DRAWN) // 2][0].set_ylabel("Output voltage (V)")
    panels[-1][0].set_xlabel("Time (ms)")
    right = fig.add_subplot(grid[:, 1])
    for number, (metric, label) in enumerate(
        (("ripple", "ripple, settled"), ("start_peak", "peak at the start"))
    ):
        series = data.series(metric, "period")
        right.plot(
            series.index.to_list(), series.to_list(), label=label, **figures.style_of(number)
        )
    label = f"paper: stable to {NAMED} µs"
    right.axvline(NAMED, color="black", linestyle=":", linewidth=0.8, label=label)
    right.set(xlabel="Controller's period (µs)", ylabel="Times the wanted voltage")
    right.legend()
    fig.suptitle(f"{CONVERTERS} converters, loops of 10 µs, and one controller")
    return fig


experiment = Experiment(
    id="loco/fig7",
    title="DC/DC converters under one controller: output voltage by loop period",
    profile="c6525-25g",
    axes={"period": Axis(PERIODS, unit="us")},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "21 nodes with loops of 10 us need a core each"},
    max_repetitions=1,
    decides={
        "loco/fig7_stable_period": by_construction(stable_period, DERIVED),
        "loco/fig7_instability_grows": by_construction(instability_grows, DERIVED),
        "loco/fig7_transients": by_construction(transients, DERIVED),
    },
)
