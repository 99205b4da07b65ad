"""Throughput with null-sends while senders are delayed (figure 10).

All members are senders. One or half of them compute after each message: for 1 us, for 100 us, or
without end, so that they send nothing. The paper's third delay has no number in the text. A run
ends when each member has delivered as many messages as without a delay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.spindle import _misses, _multicast
from pyrdma import Axis, Experiment, Point, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = "batching+nulls"
NONE = "none"
DELAYS = {NONE: 0, "1 µs": 1000, "100 µs": 100_000, "endless": -1}
DELAYED = {NONE: "no sender", "one": "one sender", "half": "half of the senders"}
EXCEPTION = ("half", "endless")
CASES = [(who, delay) for who in ("one", "half") for delay in list(DELAYS)[1:]]


def where(params: Mapping[str, Any]) -> bool:
    """Keep one point without delayed senders."""
    return bool((params["delayed"] == NONE) == (params["delay"] == NONE))


def measure(point: Point) -> Any:
    """Measure one delay of one number of senders."""
    load = {"delayed": point["delayed"], "delay_ns": DELAYS[point["delay"]]}
    return _multicast.measured(
        _multicast.run(point, point["nodes"], preset=point["series"], **load)
    )


def gain(data: Data, case: tuple[str, str], metric: str = "throughput") -> float:
    """Return the mean ratio over the sizes of a case to the run without delays."""
    of = {"delayed": case[0], "delay": case[1]}
    none = {"delayed": NONE, "delay": NONE}
    return float(_multicast.ratios(data, metric, of, none, series=PAPER).mean())


def delays_help(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether all cases but the paper's exception are faster than without delays."""
    found = {f"{who}, {delay}": gain(data, (who, delay)) for who, delay in CASES}
    least = min(rate for case, rate in found.items() if case != ", ".join(EXCEPTION))
    text = "; ".join(f"{case} {rate:.2f}" for case, rate in found.items())
    return Decision(least > 1, f"times the throughput without: {text}")


def peak(data: Data, claim: Claim) -> Decision:
    """Compare the highest throughput of all cases and sizes with the claim."""
    rows = data.select("throughput", series=PAPER)
    best = rows.loc[rows["value"].idxmax()]
    text = f"{best['delayed']} delayed {best['delay']}, at {best['nodes']} nodes"
    return Decision(None, float(best["value"]) / 1e9, f"{text}, {claim.unit}")


def no_increase(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether half endless is not faster than without delays."""
    found = gain(data, EXCEPTION)
    return Decision(found <= 1, f"{found:.2f} times the throughput without")


def mechanism(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide by two conditions.

    A delay of 1 us enlarges delivery batches. Senders that others leave the links to send more each
    than without delays.
    """
    batches = {who: gain(data, (who, "1 µs"), "delivery_batch") for who in ("one", "half")}
    shares = {}
    for who in ("one", "half"):
        of = {"delayed": who, "delay": "endless"}
        none = {"delayed": NONE, "delay": NONE}
        found = _multicast.ratios(data, "throughput", of, none, series=PAPER)
        active = [n / (n - (1 if who == "one" else max(1, n // 2))) for n in found.index]
        shares[who] = float((found * active).mean())
    text = (
        f"delivery batches with 1 us {_multicast.listed(batches)}; rate of an active sender "
        f"{_multicast.listed(shares)} endless, times that without"
    )
    return Decision(min(*batches.values(), *shares.values()) > 1, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the delays of one and of half of the senders, then those of `best`."""
    shown = [(series, who) for series in (PAPER, "best") for who in ("one", "half")]
    fig, panels = figures.new(2, 2, sharey=True)
    for ax, (series, who) in zip(panels.flat, shown, strict=True):
        for number, delay in enumerate(DELAYS):
            at: dict[str, Any] = {
                "series": series,
                "delay": delay,
                "delayed": NONE if delay == NONE else who,
            }
            label = "no delay" if delay == NONE else f"delay {delay}"
            figures.line(
                ax, data, "throughput", "nodes", unit="GB/s", label=label, first=number, **at
            )
        ax.set_title(f"{_multicast.NAMES[series]}; {DELAYED[who]} delayed")
    for ax in panels.flat:
        _multicast.finish(ax, data)
    for ax in panels[0]:
        _multicast.marked_level(ax, data, claims["spindle/fig10_peak"], "peak of all cases", 4)
    figures.legend_below(list(panels.flat))
    return fig


experiment = Experiment(
    id="spindle/fig10",
    title="Null-sends with delayed senders",
    profile="spindle",
    axes={
        "series": Axis([PAPER, "best"]),
        "delayed": Axis(list(DELAYED)),
        "delay": Axis(list(DELAYS)),
        "nodes": _multicast.FEW_NODES,
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=_multicast.FABRICS,
    why_not=_multicast.WHY_NOT,
    decides={
        "spindle/fig10_delays_help": delays_help,
        "spindle/fig10_peak": peak,
        "spindle/fig10_half_indefinite": no_increase,
        "spindle/fig10_mechanism": mechanism,
    },
    misses={
        "spindle/fig10_delays_help": "a sender that pauses leaves its link unused: the bound "
        "12.5 S/(n-1) GB/s counts the active senders. With half of 16 silent it is 6.7 GB/s and "
        "5.6 are measured, and with all 13.3 and 9.2. Another sender's link has nothing to gain",
        "spindle/fig10_peak": _misses.LINK,
        "spindle/fig10_mechanism": "a sender that pauses for 1 us fills its slots one by one, "
        "so send batches shrink from 6.1 messages to 2.9 (one delayed of 4) and 1.9 (half), and "
        "deliveries with them",
    },
)
