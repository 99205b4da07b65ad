"""Time of each step of a verbs connection (section 2.3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments import _axes
from experiments.krcore import _control
from pyrdma import Experiment, Point, Row, decide, figures
from pyrdma.claims import Claim
from pyrdma.data import Data
from pyrdma.decide import Decision
from pyrdma.profiles import Profile

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(point: Point) -> list[Row]:
    """Measure the mean time of each step of a connection."""
    result = _control.connect(point, 1, "verbs", point.duration(0.1, 1.0))
    times = {phase: result.latency(phase).mean for phase in _control.PHASES}
    total = sum(times.values())
    rows = [Row("time", time, "ns", {"phase": phase}) for phase, time in times.items()]
    for name, phases in _control.PAPER_PHASES.items():
        rows.append(
            Row("share", sum(times[p] for p in phases) / total, "fraction", {"phase": name})
        )
    return rows


IN_PROFILE = "the profile holds the NIC's part"


def nic_share(data: Data, claim: Claim) -> Decision:
    """Compare the NIC's part of create_qp, from the profile, with its measured time."""
    nic = Profile.load("krcore").values()["control.create_qp_command_us"]
    total = data.value("time", "us", phase="create_qp")
    return Decision(None, 100 * nic / total, f"{nic:g} of {total:.0f} us ({claim.unit})")


def hardware_dominates(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
    """Decide by the queues' set-up: the NIC's part against the driver's and the handshake.

    The paper's handshakes over TCP are not modelled.
    """
    control = Profile.load("krcore").values()
    nic = control["control.create_qp_command_us"] + 4 * control["control.command_us"]
    total = sum(data.value("time", "us", phase=p) for p in ("create_cq", "create_qp", "configure"))
    handshake = data.value("time", "us", phase="handshake")
    return Decision(
        nic > total - nic and nic > handshake,
        f"NIC {nic:.0f}, driver {total - nic:.0f}, handshake {handshake:.0f} us",
        "queue set-up only; TCP handshakes are not modelled",
    )


def figure(data: Data, claims: Mapping[str, Claim]) -> Figure:
    """Draw the steps, and their shares in the paper's groups."""
    fig, (left, right) = figures.new(1, 2)
    phases = list(_control.PHASES)
    times = [data.value("time", "us", phase=p) for p in phases]
    figures.bars(left, phases, {"verbs": times}, values="{:,.0f}", log=True)
    figures.overlay(
        left,
        [(claims["krcore/fig3b_create_qp"], phases.index("create_qp"))],
        unit="us",
        names={"verbs": "create_qp"},
    )
    left.set(ylabel="Time (µs)", ylim=(1, 1e5))
    left.tick_params(axis="x", rotation=30)
    groups = list(_control.PAPER_PHASES)
    figures.bars(
        right, groups, {"verbs": [data.value("share", "percent", phase=g) for g in groups]}
    )
    _axes.write_values(right, "{:.1f}")
    figures.overlay(
        right,
        [(claims["krcore/fig3b_handshake_share"], groups.index("Handshake"))],
        unit="percent",
        names={"verbs": "handshake"},
    )
    right.set(ylabel="Share of the time (%)", ylim=(0, 105))
    for ax in (left, right):
        ax.legend()
    return fig


experiment = Experiment(
    id="krcore/fig3b",
    title="Breakdown of RDMA control-path time",
    profile="krcore",
    measure=measure,
    figure=figure,
    fabrics=("sim", "verbs"),
    why_not={"shm": "shared memory has neither driver nor NIC to set up"},
    decides={
        "krcore/fig3b_handshake_share": decide.value("share", phase="Handshake"),
        "krcore/fig3b_create_qp": decide.value("time", phase="create_qp"),
        "krcore/fig3b_create_qp_nic": decide.profile("control.create_qp_command_us"),
        "krcore/fig3b_create_qp_nic_share": decide.by_construction(nic_share, IN_PROFILE),
        "krcore/fig3b_hw_dominates": decide.by_construction(hardware_dominates, IN_PROFILE),
    },
)
