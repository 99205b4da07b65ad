"""The optimizations of the common case, switched off one after another (table 3, section 6.2).

Each row keeps the switches of the rows above it off. Its loss is against the row above. The last
row has no congestion control and all optimizations on: the overhead of congestion control is
against that.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.erpc import _load, _misses
from pyrdma import Axis, Experiment, Point, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "request_rate_per_thread"
NO_CONTROL = "no_congestion_control"
ROWS = {  # series of the claims: name in the figure, switch of the workload, name of its claims
    "baseline": ("paper's protocol", "", "baseline"),
    "no_batched_timestamps": ("- batched timestamps", "batched_timestamps", "no_batched_ts"),
    "no_timely_bypass": ("- Timely bypass", "timely_bypass", "no_timely_bypass"),
    "no_rate_limiter_bypass": ("- rate limiter bypass", "rate_limiter_bypass", "no_rl_bypass"),
    "no_multi_packet_rq": ("- multi-packet receives", "multi_packet_receives", "no_mprq"),
    "no_preallocated_responses": (
        "- preallocated responses",
        "preallocated_responses",
        "no_prealloc",
    ),
    "no_zero_copy_rx": ("- zero-copy requests", "zero_copy_receive", "no_zero_copy"),
}
BASE, ALL_OFF = {"series": "baseline"}, {"series": "no_zero_copy_rx"}


def measure(point: Point) -> Any:
    """Measure figure 4's load in batches of 3 with the switches of a row off."""
    if point["series"] == NO_CONTROL:
        return {METRIC: _load.rate(point, congestion_control="none")}
    rows = list(ROWS)
    off = {ROWS[row][1]: "off" for row in rows[1 : rows.index(point["series"]) + 1]}
    return {METRIC: _load.rate(point, **off)}


def losses(data: Data) -> dict[str, float]:
    """Return the loss of each row against the row above."""
    rates = {row: data.value(METRIC, series=row) for row in ROWS}
    return {b: 1 - rates[b] / rates[a] for a, b in itertools.pairwise(ROWS)}


def order(data: Data, claim: Claim) -> Decision:
    """Compare the order of the losses with the paper's."""
    found = losses(data)
    ranked = sorted(found, key=lambda row: found[row], reverse=True)
    text = ", ".join(f"{row} {100 * found[row]:.1f} %" for row in ranked)
    return Decision(ranked == str(claim.value).split(" > "), text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the rate of each row beside the paper's, the baseline on top."""
    fig, ax = figures.new()
    rates = [data.value(METRIC, "Mop/s", series=row) for row in ROWS]
    style = figures.style_of(0)
    places = range(len(ROWS))
    ax.barh(places, rates, 0.6, color=style["color"], label="eRPC, CX4")
    for place, rate in zip(places, rates, strict=True):
        ax.text(0.04 * max(rates), place, f"{rate:.2f}", va="center", color="white", fontsize=8)
    paper = [claims[f"erpc/t3_{key}"].number for _, _, key in ROWS.values()]
    ax.plot(
        paper,
        places,
        "o",
        color="black",
        markerfacecolor="none",
        markersize=6.5,
        label="paper: eRPC",
    )
    without = data.value(METRIC, "Mop/s", series=NO_CONTROL)
    ax.axvline(without, color="black", linestyle="--", linewidth=1, label="no congestion control")
    ax.set_yticks(places, [name for name, _, _ in ROWS.values()])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set(xlabel="Requests per thread (M/s)", xlim=(0, 1.15 * max(*rates, without, 4.96)))
    ax.legend()
    return fig


def gain(row: str) -> decide.Decider:
    """Decide what an optimization gains over the rate without it."""
    above = list(ROWS)[list(ROWS).index(row) - 1]
    return decide.ratio(METRIC, {"series": above}, {"series": row}, "excess")


experiment = Experiment(
    id="erpc/table3",
    title="Impact of switching optimizations off on small requests",
    profile="cx4",
    axes={"series": Axis([*ROWS, NO_CONTROL])},
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "eleven nodes that poll need a core each; see pyrdma bench erpc/"},
    decides={
        **{f"erpc/t3_{key}": decide.value(METRIC, series=row) for row, (_, _, key) in ROWS.items()},
        **{
            f"erpc/t3_{ROWS[b][2]}_loss": decide.ratio(METRIC, {"series": b}, {"series": a}, "loss")
            for a, b in itertools.pairwise(ROWS)
        },
        "erpc/t3_rank_of_losses": order,
        "erpc/t3_all_off_rate": decide.value(METRIC, **ALL_OFF),
        "erpc/t3_all_off_loss": decide.ratio(METRIC, ALL_OFF, BASE, "loss"),
        "erpc/optimization_gain_headline": decide.ratio(METRIC, BASE, ALL_OFF, "excess"),
        "erpc/zero_copy_rx_gain_claimed": gain("no_zero_copy_rx"),
        "erpc/prealloc_gain_claimed": gain("no_preallocated_responses"),
        "erpc/cc_overhead_without_shortcuts": decide.ratio(
            METRIC, {"series": "no_rate_limiter_bypass"}, {"series": NO_CONTROL}, "loss"
        ),
    },
    misses={
        "erpc/t3_baseline": _misses.RATE,
        "erpc/t3_no_batched_ts": _misses.RATE,
        "erpc/t3_no_timely_bypass": _misses.RATE,
        "erpc/t3_no_rl_bypass": _misses.RATE,
        "erpc/t3_no_mprq": _misses.RATE,
        "erpc/t3_no_prealloc": _misses.RATE,
        "erpc/t3_no_zero_copy": _misses.RATE,
        "erpc/t3_all_off_rate": _misses.RATE,
        "erpc/t3_no_timely_bypass_loss": _misses.STEPS,
        "erpc/t3_no_rl_bypass_loss": _misses.STEPS,
        "erpc/t3_no_prealloc_loss": _misses.STEPS,
        "erpc/t3_no_zero_copy_loss": _misses.STEPS,
        "erpc/t3_rank_of_losses": _misses.STEPS,
        "erpc/t3_all_off_loss": _misses.STEPS,
        "erpc/zero_copy_rx_gain_claimed": _misses.STEPS,
        "erpc/prealloc_gain_claimed": _misses.STEPS,
        "erpc/cc_overhead_without_shortcuts": _misses.STEPS,
        "erpc/t3_no_batched_ts_loss": "readings of the clock, 8 ns each, add 16 ns to the 397 "
        "of a request; the claim is 4.8 of 202",
        "erpc/t3_no_mprq_loss": "a receive for each of the two packets of a request takes 20 ns "
        "of the driver, an estimate of the profile (cpu.post_request_ns)",
    },
)
