"""Connects that read the DCT metadata, against connects that ask for them by RPC (section 5.1).

One thread of the meta server answers the RPCs. To show what limits it, one point each has CPUs, or
NICs, that are twice as fast as the profile's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from experiments import _axes
from experiments.krcore import _misses
from pyrdma import Axis, Experiment, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile
from pyrdma.units import convert

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

META, RPC = "meta server", "RPC"
METADATA: dict[str, Literal["meta_server", "rpc"]] = {META: "meta_server", RPC: "rpc"}
MANY = 240
# The clients of this load begin by themselves, and one that begins late measures when others have
# ended. So each client has a core of its own, and so have the service's threads, and the nodes have
# no variance, which would spread their boots.
CLIENT_NODES = 12
PROFILE = "the profile's"
PARTS = {"CPU": "cpu.", "NIC": "nic."}
FASTER = 2
SHARE = 0.5
"""The least share of a part's higher speed that the rate of a bottleneck gains."""


def faster(profile: str, part: str) -> dict[str, float]:
    """Return the costs of the CPU or of the NIC, divided by `FASTER`, as overrides."""
    if part == PROFILE:
        return {}
    known = Profile.load(profile).parameters
    found = {
        key: float(parameter.value) / FASTER
        for key, parameter in known.items()
        if key.startswith(PARTS[part]) and key.endswith("_ns")
    }
    if part == "CPU":
        found["cpu.ipc"] = FASTER * float(known["cpu.ipc"].value)
    return found


def is_run(params: Mapping[str, Any]) -> bool:
    """Run other parts with RPCs of all clients alone."""
    is_profile = params["faster"] == PROFILE
    return bool(is_profile or (params["series"] == RPC and params["clients"] == MANY))


def measure(point: Point) -> Any:
    """Measure clients that connect repeatedly, without a cache."""
    clients = int(point["clients"])
    load = workload.KrcoreConnect(
        clients=clients, metadata=METADATA[str(point["series"])], warmup_ns=200_000
    )
    overrides = faster(point.profile, str(point["faster"]))
    nodes = 1 + min(clients, CLIENT_NODES)
    with point.cluster(nodes=nodes, overrides=overrides, variance=False) as cluster:
        result = cluster.run(load, duration_s=point.duration(5e-3, 20e-3))
    return {
        "rate": (result.value("rate"), "op/s"),
        "latency": (result.latency("connect").mean, "ns"),
    }


def over_clients(data: Data, metric: str, unit: str, series: str) -> pd.Series:
    """Return a metric over the clients, with the profile's parts."""
    return data.series(metric, "clients", unit, series=series, faster=PROFILE)


def rates(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the peak rates of both."""
    read, asked = (float(over_clients(data, "rate", "Mop/s", s).max()) for s in (META, RPC))
    return Decision(None, read / asked, f"{read:.1f} to {asked:.2f} M/s")


def latencies(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Compare the largest ratio of the latencies over the clients with the paper's bound."""
    ratios = over_clients(data, "latency", "us", RPC) / over_clients(data, "latency", "us", META)
    at = int(ratios.idxmax())
    return Decision(None, float(ratios.max()), f"{ratios.iloc[0]:.2f} x at 1 client, most at {at}")


def bottleneck(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide by ablation: a faster CPU raises the rate of RPCs, and a faster NIC does not."""
    base, cpu, nic = (
        data.value("rate", "Mop/s", series=RPC, clients=MANY, faster=part)
        for part in (PROFILE, *PARTS)
    )
    least = 1 + SHARE * (FASTER - 1)
    text = f"{base:.2f} M/s; {cpu:.2f} with CPUs, {nic:.2f} with NICs twice as fast"
    return Decision(cpu >= least * base > nic, text)


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw latency against rate, and the rate over the clients."""
    fig, (left, right) = figures.new(1, 2)
    for number, series in enumerate(METADATA):
        rate = over_clients(data, "rate", "Mop/s", series)
        latency = over_clients(data, "latency", "us", series)
        style = figures.style_of(number)
        left.plot(rate.to_list(), latency.to_list(), label=series, **style)
        right.plot(rate.index.to_list(), rate.to_list(), label=series, **style)
    for number, part in enumerate(PARTS):
        found = data.value("rate", "Mop/s", series=RPC, clients=MANY, faster=part)
        style = {**figures.style_of(2 + number), "linestyle": "none"}
        right.plot([MANY], [found], label=f"RPC, {part} twice as fast", **style)
    peak, ratio = claims["krcore/f8a_krcore_240"], claims["krcore/f9a_rate_ratio"].number
    if peak.number is not None and ratio is not None:
        paper = convert(peak.number, peak.unit, "Mop/s")
        _axes.hollow(right, MANY, paper, f"paper: {META} (figure 8a)", "^")
        _axes.hollow(right, MANY, paper / ratio, f"paper: {RPC}, by their ratio", "v")
    left.set(xlabel="Connects (M/s)", ylabel="Mean latency (µs)")
    right.set(xlabel="Clients", ylabel="Connects (M/s)", xlim=(0, MANY + 15))
    _axes.logarithmic(left)
    _axes.from_zero(right)
    left.legend()
    right.legend()
    return fig


DECIDES: dict[str, Any] = {
    "krcore/f9a_rate_ratio": rates,
    "krcore/f9a_latency_ratio": latencies,
    "krcore/f9a_rpc_bottleneck": bottleneck,
}

experiment = Experiment(
    id="krcore/fig9a",
    title="Metadata from a meta server against metadata by RPC",
    profile="krcore",
    axes={
        "series": Axis(list(METADATA)),
        "clients": Axis(
            [1, 20, 80, MANY], full=[1, 10, 20, 40, 80, 120, 160, MANY], unit="clients"
        ),
        "faster": Axis([PROFILE, *PARTS]),
    },
    where=is_run,
    measure=measure,
    figure=figure,
    fabrics=("sim",),
    why_not={
        "shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates",
        "verbs": "a real machine cannot have faster CPUs or NICs",
    },
    decides=DECIDES,
    misses=_misses.of(DECIDES),
)
