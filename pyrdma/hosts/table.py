"""``hosts.parquet``: what the hosts of a testbed were when they measured, and their clocks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrdma import provenance
from pyrdma.errors import Error
from pyrdma.result import write_table

from .clocks import Comparison, HostClocks
from .fleet import Fleet
from .host import Host

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HostTable"]

FILE = "hosts.parquet"


class HostTable:
    """The table of a run: made before the first point, written after the last.

    Parameters
    ----------
    compare
        Whether the hosts exchange messages, so that their clocks matter.
    """

    def __init__(self, fleet: Fleet, *, compare: bool) -> None:
        self._fleet = fleet
        self._facts = fleet.facts()
        self._compare = compare and len(fleet.hosts) > 1 and bool(fleet.hosts[0].entry.address)
        self._before = self._compared()

    def _compared(self) -> dict[Host, Comparison]:
        if not self._compare:
            return {}
        HostClocks(self._fleet.hosts)
        return {h: h.compared for h in self._fleet.hosts if h.compared is not None}

    def write(self, folder: Path) -> None:
        """Write the table; rows of hosts that did not take part this time stay."""
        import pandas as pd

        try:
            after = self._compared()
        except Error:  # the points are measured, and the drift is all that lacks
            after = {}
        rows = [self._row(host, after.get(host)) for host in self._fleet.hosts]
        frame = pd.DataFrame(rows)
        file = folder / FILE
        if file.is_file():
            earlier = _read(file)
            kept = earlier[~earlier["host"].isin(frame["host"])]
            if len(kept):
                frame = pd.concat([frame, kept], ignore_index=True)
        write_table(file, frame.sort_values("host").reset_index(drop=True))

    def _row(self, host: Host, after: Comparison | None) -> dict[str, Any]:
        before = self._before.get(host)
        nan = float("nan")
        row: dict[str, Any] = {
            "host": host.name,
            "testbed": self._fleet.testbed,
            "slots": host.entry.slots,
            **self._facts[host],
            "clock_offset_ns": float(before.offset_ns) if before else nan,
            "clock_bound_ns": float(before.bound_ns) if before else nan,
            "clock_drift_ppm": nan,
            "clock_drift_bound_ppm": nan,
            "asked": provenance.now(),
        }
        if before is not None and after is not None and after.at_ns > before.at_ns:
            time = after.at_ns - before.at_ns
            row["clock_drift_ppm"] = 1e6 * (after.offset_ns - before.offset_ns) / time
            row["clock_drift_bound_ppm"] = 1e6 * (after.bound_ns + before.bound_ns) / time
        return row


def _read(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(file)
    except (OSError, ValueError):  # damaged: the hosts of this run are in the new one
        return pd.DataFrame({"host": []})
