"""NIC facts on which LOCO's design rests: many small regions, device memory (7.1, A.2).

The paper states them without numbers, so ranks and trends decide. The simulator's weak memory
implements the paper's statements on the order of writes (2.2); litmus tests confirm them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments import _axes
from experiments._needs import needs
from pyrdma import Axis, Experiment, Point, Row, decide, figures, workload
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGION = 4096  # bytes of a small region
READ = 8
CLIENT_NODES, THREADS = 2, 8  # enough to fill the server's link
SERIES = (
    "small regions",
    "one region",
    "host memory",
    "device memory",
    "registration",
    "placement",
)
SHAPES = {
    "CoWR-2qp-poll": "a completed write, read over another queue pair",
    "CoWR": "read over the queue pair of the write",
    "MP": "two writes of one queue pair",
    "MP-atomic": "an atomic behind a write",
}


def where(params: Mapping[str, Any]) -> bool:
    """Sweep the number of regions only in the series about regions."""
    return params["series"] in SERIES[:2] or params["regions"] == 1


def measure(point: Point) -> Any:
    """Measure the rate over the same bytes in many regions or one, or the latency of one read."""
    if point["series"] == "registration":
        return registration(point)
    if point["series"] == "placement":
        return placement(point)
    if point["series"] in SERIES[2:4]:
        return latency(point)
    many = point["series"] == "small regions"
    load = workload.VerbsLoad(
        op="read",
        size=READ,
        threads=THREADS,
        depth=32,
        batch=1,
        regions=point["regions"] if many else 1,
        region_bytes=REGION if many else REGION * point["regions"],
        addresses="random",
        warmup_ns=3_000_000,  # until the NIC's cache is in its steady state
    )
    with point.cluster(nodes=1 + CLIENT_NODES) as cluster:
        return {
            "read_rate": (
                cluster.run(load, duration_s=point.duration(200e-6, 1e-3)).value("rate"),
                "op/s",
            )
        }


def latency(point: Point) -> Any:
    """Measure one read at a time, from memory of the server's host or of its NIC."""
    on_nic = point["series"] == "device memory"
    load = workload.VerbsLoad(op="read", size=READ, mode="latency", device_memory=on_nic)
    with point.cluster(nodes=2) as cluster:
        found = cluster.run(load, duration_s=point.duration(300e-6, 1e-3))
    return {"latency_p50": (found.latency("read").percentile(50), "ns")}


def registration(point: Point) -> Any:
    """Measure the registration of one small region as a step of connecting."""
    load = workload.ControlPath(clients=1, iterations=5)
    with point.cluster(nodes=2) as cluster:
        found = cluster.run(load, duration_s=10.0).latency("register")
    return {"register_time": (found.mean, "ns")}


def placement(point: Point) -> list[Row]:
    """Count the outcomes that show a late write in weak memory (2.2)."""
    rows = []
    for shape in SHAPES:
        with point.cluster(nodes=3, memory="weak") as cluster:
            frame = cluster.run(workload.Litmus(shape=shape, rounds=4000)).frame
        late = frame["metric"].str.contains(r"\|(?:late|forbidden)\|")
        rows.append(Row("late", float(frame[late]["value"].sum()), "count", {"shape": shape}))
    return rows


def late(data: Data, shapes: tuple[str, ...]) -> dict[str, int]:
    """Return how often each shape showed a late write."""
    rows = data.select("late")
    return {s: int(rows[rows["shape"] == s]["value"].sum()) for s in shapes}


def one_queue_pair_orders(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether the queue pair of a write never shows the write late."""
    seen = late(data, tuple(SHAPES)[1:])
    text = ", ".join(f"{SHAPES[s]}: {n}" for s, n in seen.items())
    return Decision(not any(seen.values()), f"late of 4,000: {text}")


def completes_before_placement(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide whether a completed write is sometimes not in place."""
    shape = next(iter(SHAPES))
    seen = late(data, (shape,))[shape]
    return Decision(seen > 0, f"{SHAPES[shape]}: late {seen} of 4,000 times")


def small_regions_slower(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide at the largest measured number of regions."""
    most = max(data.values_of("regions"))
    many = data.value("read_rate", "Mop/s", series="small regions", regions=most)
    one = data.value("read_rate", "Mop/s", series="one region", regions=most)
    return Decision(many < 0.95 * one, f"{most} regions {many:.1f}, one region {one:.1f} Mop/s")


def device_memory_faster(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide by the median latency of a read."""
    host = data.value("latency_p50", "us", series="host memory")
    device = data.value("latency_p50", "us", series="device memory")
    return Decision(device < host, f"host memory {host:.2f}, device memory {device:.2f} us")


def registration_slow(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - as above
    """Decide whether registering a region takes many times as long as one access to it."""
    register = data.value("register_time", "us", series="registration")
    read = data.value("latency_p50", "us", series="host memory")
    return Decision(register > 10 * read, f"{register:.0f} us against {read:.2f} us of a read")


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:  # noqa: ARG001 - the text has no numbers
    """Draw the rate against the number of regions, and the two latencies."""
    fig, (left, right) = figures.new(1, 2)
    names = {
        "small regions": f"regions of {REGION // 1024} KiB",
        "one region": "one region of the same bytes",
    }
    figures.line(
        left,
        data,
        "read_rate",
        "regions",
        unit="Mop/s",
        by="series",
        names=names,
        series=list(SERIES[:2]),
    )
    left.set_xscale("log", base=2)
    left.set(
        xlabel="Regions of 4 KiB, or their bytes in one", ylabel=f"Rate of {READ} B reads (M/s)"
    )
    _axes.from_zero(left)
    _axes.layer(left)
    left.legend()
    places = [s for s in SERIES[2:4] if s in data.values_of("series")]
    found = [data.value("latency_p50", "us", series=s) for s in places]
    figures.bars(right, places, {f"{READ} B read": found})
    _axes.write_values(right)
    right.set(ylabel="Median latency (µs)", ylim=(0, 1.2 * max(found)))
    return fig


experiment = Experiment(
    id="loco/nic_facts",
    title="NIC facts: many small regions, device memory",
    profile="c6525-25g",
    axes={
        "series": Axis(SERIES),
        "regions": Axis([1, 1024, 8192, 32768], full=[2**n for n in range(0, 17, 2)]),
    },
    where=where,
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has no NIC with caches or memory of its own"},
    decides={
        "loco/cal_link_rate": decide.profile("link.rate_gbps"),
        "loco/cal_many_small_regions_slower": small_regions_slower,
        "loco/cal_device_memory_faster": device_memory_faster,
        "loco/cal_registration_latency": registration_slow,
        "loco/cal_huge_pages_tlb": needs(
            "the CPU's translation buffer, which the simulator leaves out"
        ),
        "loco/cal_same_qp_write_order": one_queue_pair_orders,
        "loco/cal_completion_before_placement": completes_before_placement,
    },
    misses={
        "loco/cal_registration_latency": "28 us, half of a published pair of calls, are 9.2 "
        "reads; the text gives no number, and the decider wants ten",
    },
)
