"""One-sided requests of 1 to 240 clients to one server, as in figure 10 (section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from experiments import _axes
from pyrdma import Axis, Point, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Ten nodes of 24 cores carry 240 clients, one core each; the server is one more node. The paper's
# ten nodes leave no node for the server (claims file, ambiguity clients_240).
CLIENT_NODES = 10
CLIENTS = Axis(
    [1, 10, 40, 120, 240], full=[1, 2, 5, 10, 20, 40, 80, 120, 160, 200, 240], unit="clients"
)
# The paper does not state the size of a client's batch (ambiguity unreported_workload). 16 requests
# of each of 240 clients keep the server's NIC busy many times over.
BATCH = 16
NAMES = {"KRCore(RC)": "KRCore(RC), not built yet", "KRCore(DC)": "KRCore(DC), not built yet"}
REGION = 64 << 20  # bytes of the server's memory; the clients access random addresses in it


def measure(op: Literal["read", "write"], batch: int) -> Callable[[Point], Any]:
    """Return a function that measures `op` of 8 bytes, `batch` requests in flight per client."""

    def run(point: Point) -> Any:
        nodes = min(CLIENT_NODES, int(point["clients"]))
        load = workload.VerbsLoad(
            op=op,
            size=8,
            depth=batch,
            batch=batch,
            clients=int(point["clients"]),
            servers=1,
            region_bytes=REGION,
            addresses="random",
            record_latency=True,
            warmup_ns=30_000,
        )
        with point.cluster(nodes=nodes + 1) as cluster:
            return cluster.run(load, duration_s=point.duration(100e-6, 1e-3))

    return run


def figure(
    name: str, op: Literal["read", "write"], title: str
) -> Callable[[Data, Mapping[str, Claim]], Figure]:
    """Return a function that draws latency against throughput, and throughput against clients."""

    def draw(data: Data, claims: Mapping[str, Claim]) -> Figure:
        fig, (left, right) = figures.new(1, 2)
        rate = data.series("rate", "clients", "M req/s")
        latency = data.series(f"{op}_latency_mean", "clients", "us")
        style = figures.style_of(0)
        left.plot(rate.to_list(), latency.to_list(), label="verbs (RC)", **style)
        _label_ends(left, rate.to_list(), latency.to_list(), rate.index.to_list())
        left.set(xlabel="Throughput (M requests/s)", ylabel="Mean latency (µs)")
        right.plot(rate.index.to_list(), rate.to_list(), label="verbs (RC)", **style)
        right.set(xlabel="Clients", ylabel="Throughput (M requests/s)")
        _overlay(left, right, [c for c in claims.values() if c.experiment == name])
        _axes.from_zero(left, right)
        left.legend(loc="lower right")
        right.legend(loc="lower right")
        fig.suptitle(title)
        return fig

    return draw


def _label_ends(ax: Any, x: Sequence[float], y: Sequence[float], clients: Sequence[int]) -> None:
    for at in (0, -1):
        ax.annotate(
            f"{clients[at]} client{'s' if clients[at] > 1 else ''}",
            (x[at], y[at]),
            xytext=(6 if at == 0 else -6, 8),
            textcoords="offset points",
            ha="left" if at == 0 else "right",
            fontsize=8,
        )


def _overlay(left: Any, right: Any, claims: Sequence[Claim]) -> None:
    """Draw the paper's numbers: latencies at one client, peaks at 240 clients."""
    latencies = [c for c in claims if c.metric == "latency" and c.kind == "absolute"]
    peaks = [c for c in claims if c.metric == "throughput" and c.kind == "absolute"]
    # The rate of one client in a closed loop follows from its latency.
    figures.overlay(
        left, [(c, 1 / c.number) for c in latencies if c.number], unit="us", names=NAMES
    )
    figures.overlay(right, [(c, 240) for c in peaks], unit="M req/s", names=NAMES)
