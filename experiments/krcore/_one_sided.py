"""One-sided requests of 1 to 240 clients to one server, as in figure 10 (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from experiments import _axes
from experiments.krcore import _misses
from pyrdma import Axis, Experiment, Point, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decider, Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Op = Literal["read", "write"]

# Ten nodes of 24 cores carry 240 clients, one core each; the server is one more node. The paper's
# ten nodes leave no node for the server (claims file, ambiguity clients_240).
CLIENT_NODES = 10
CLIENTS = Axis(
    [1, 10, 40, 120, 240], full=[1, 2, 5, 10, 20, 40, 80, 120, 160, 200, 240], unit="clients"
)
SERIES = Axis(["verbs", "KRCore(RC)", "KRCore(DC)"])
# The paper does not state the size of a client's batch (ambiguity unreported_workload). The public
# code has 12 requests in flight per client.
BATCH = 12
# Clients begin within 100 us of each other, and each measures its own interval: it is long, so that
# the rates of all add up.
WARMUP_NS = 300_000
DURATION = (2e-3, 10e-3)  # seconds, quick and full
REGION = 64 << 20  # bytes of the server's memory; the clients access random addresses in it
WHY_NOT = {"shm": "240 clients need 240 cores; fabric/rate measures this machine's own rates"}


def one_sided(
    point: Point,
    series: str,
    op: Op,
    clients: int,
    batch: int = 1,
    size: int = 8,
    servers: int = 1,
    nodes: int | None = None,
    duration: tuple[float, float] = DURATION,
    **more: Any,
) -> Any:
    """Run one load of READs or WRITEs, and return its result.

    verbs and KRCore post lists of `batch` requests, of which the last one has a signal, and wait
    for it. KRCore does both in one call.
    """
    count = servers + min(CLIENT_NODES, clients) if nodes is None else nodes
    if series == "verbs":
        load: Any = workload.VerbsLoad(
            op=op,
            size=size,
            depth=batch,
            batch=batch,
            signal_every=batch,
            refill="empty" if batch > 1 else "room",
            clients=clients,
            servers=servers,
            pattern="random" if servers > 1 else "pair",
            qps=servers,
            region_bytes=REGION,
            addresses="random",
            record_latency=True,
            warmup_ns=WARMUP_NS,
        )
    else:
        load = workload.KrcoreOneSided(
            op=op,
            size=size,
            batch=batch,
            clients=clients,
            servers=servers,
            transport="rc" if series == "KRCore(RC)" else "dc",
            region_bytes=REGION,
            arena_bytes=REGION + (64 << 20),
            warmup_ns=WARMUP_NS,
            **more,
        )
    with point.cluster(nodes=count) as cluster:
        return cluster.run(load, duration_s=point.duration(*duration))


def measure(op: Op, batch: int) -> Callable[[Point], Any]:
    """Return a function that measures `op` of 8 bytes."""

    def run(point: Point) -> Any:
        clients = int(point["clients"])
        result = one_sided(point, str(point["series"]), op, clients, batch)
        return {
            "rate": (result.value("rate"), "op/s"),
            "latency": (result.latency(op).mean, "ns"),
        }

    return run


def excess(series: str) -> Decider:
    """Compare the mean excess of latency over verbs, over all numbers of clients."""

    def decider(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        ours = data.series("latency", "clients", series=series)
        verbs = data.series("latency", "clients", series="verbs")
        found = [100 * (float(ours[n]) / float(verbs[n]) - 1) for n in ours.index]
        low, high = min(found), max(found)
        mean = sum(found) / len(found)
        return Decision(None, mean, f"from {low:.0f} % to {high:.0f} % over the sweep")

    return decider


def order(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide the rank of latencies: verbs, then RC, then DC, at most 15 % above RC on average."""
    found = {
        s: data.series("latency", "clients", "us", series=s)
        for s in ("verbs", "KRCore(RC)", "KRCore(DC)")
    }
    verbs, rc, dc = found.values()
    holds = all(verbs[n] < rc[n] and rc[n] <= 1.02 * dc[n] for n in verbs.index) and sum(
        float(dc[n] / rc[n]) for n in rc.index
    ) < 1.15 * len(rc)
    text = "; ".join(f"{s} {float(v.iloc[0]):.2f} us" for s, v in found.items())
    return Decision(bool(holds), f"{text} at one client")


def figure(name: str, title: str) -> Callable[[Data, Mapping[str, Claim]], Figure]:
    """Return a function that draws latency against throughput, and throughput against clients."""

    def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
        fig, (left, right) = figures.new(1, 2)
        for number, series in enumerate(("verbs", "KRCore(RC)", "KRCore(DC)")):
            rate = data.series("rate", "clients", "M req/s", series=series)
            latency = data.series("latency", "clients", "us", series=series)
            style = figures.style_of(number)
            left.plot(rate.to_list(), latency.to_list(), label=series, **style)
            right.plot(rate.index.to_list(), rate.to_list(), label=series, **style)
        left.set(xlabel="Throughput (M requests/s)", ylabel="Mean latency (µs)")
        right.set(xlabel="Clients", ylabel="Throughput (M requests/s)")
        for ax in (left, right):
            _axes.layer(ax)
        overlay(left, right, [c for c in claims.values() if c.experiment == name])
        _axes.from_zero(right)
        _axes.logarithmic(left)
        figures.legend_below((left, right))
        fig.suptitle(title)
        return fig

    return draw


def overlay(left: Any, right: Any, claims: Sequence[Claim]) -> None:
    """Draw the paper's numbers: latencies at one client, peaks at 240 clients."""
    latencies = [c for c in claims if c.metric == "latency" and c.kind == "absolute"]
    peaks = [c for c in claims if c.metric == "throughput" and c.kind == "absolute"]
    # The rate of one client in a closed loop follows from its latency.
    figures.overlay(left, [(c, 1 / c.number) for c in latencies if c.number], unit="us")
    # Side by side: some of the peaks are equal.
    places = [240 + 7 * (n - len(peaks) // 2) for n in range(len(peaks))]
    figures.overlay(right, list(zip(peaks, places, strict=True)), unit="M req/s")


def experiment(name: str, title: str, op: Op, batch: int, decides: Mapping[str, Any]) -> Experiment:
    """Return one of the four experiments of figure 10."""
    return Experiment(
        id=f"krcore/{name}",
        title=title,
        profile="krcore",
        axes={"series": SERIES, "clients": CLIENTS},
        measure=measure(op, batch),
        figure=figure(f"krcore/{name}", title),
        fabrics=("sim", "verbs"),
        why_not=WHY_NOT,
        decides=dict(decides),
        misses=_misses.of(decides),
    )


def peaks(prefix: str) -> dict[str, Decider]:
    """Return the deciders of an asynchronous figure: three peaks and the loss of DC."""
    return {
        f"krcore/{prefix}_verbs_peak": decide.value("rate", series="verbs", clients=240),
        f"krcore/{prefix}_rc_peak": decide.value("rate", series="KRCore(RC)", clients=240),
        f"krcore/{prefix}_dc_peak": decide.value("rate", series="KRCore(DC)", clients=240),
        f"krcore/{prefix}_dc_loss": decide.ratio(
            "rate", {"series": "KRCore(DC)"}, {"series": "verbs"}, "loss", clients=240
        ),
    }
