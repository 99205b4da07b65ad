"""What a figure's points are, in a line: fabric, testbed, length of the runs, number, seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from .data import OVERSUBSCRIBED
from .store import Measurement
from .units import digits

__all__ = ["is_papers", "line_of"]


def line_of(measurements: Sequence[Measurement]) -> str:
    """Return the line of a figure's measurements, as ``fabric sim, profile cx5, quick; ...``."""
    identities = [m.identity for m in measurements]
    fabrics = _joined(i["fabric"] for i in identities)
    if fabrics == "sim":
        testbed = f"profile {_joined(i['profile'] for i in identities)}"
        changed = {f"{k}={digits(v)}" for i in identities for k, v in i["overrides"].items()}
        testbed += f" with {_joined(changed)}" if changed else ""
    else:
        testbed = f"on {_joined(i['machine'] for i in identities)}"
    lengths = {i["quick"] for i in identities}
    length = "quick and full" if len(lengths) == 2 else "quick" if True in lengths else "full"
    runs = Counter(str(sorted(i["params"].items())) for i in identities)
    least, most = min(runs.values()), max(runs.values())
    count = str(least) if least == most else f"{least} to {most}"
    seeds = sorted({i["seed"] for i in identities})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        named = f"seeds {seeds[0]} to {seeds[-1]}"
    else:
        named = f"seed{'s' if len(seeds) > 1 else ''} {_joined(map(str, seeds))}"
    line = f"Fabric {fabrics}, {testbed}, {length}; {_points(runs)}, n = {count} each, {named}"
    busy = {str(sorted(m.identity["params"].items())) for m in _oversubscribed(measurements)}
    if busy:
        line += f"; more busy threads than cores at {_points(busy)}"
    return f"{line}."


def _points(found: Collection[object]) -> str:
    return f"{len(found)} point{'' if len(found) == 1 else 's'}"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names), key=lambda n: (len(n), n)))


def _oversubscribed(measurements: Iterable[Measurement]) -> list[Measurement]:
    return [m for m in measurements if OVERSUBSCRIBED in m.flags]


def is_papers(measurements: Sequence[Measurement], profiles: Iterable[str]) -> bool:
    """Return whether a paper's numbers belong beside these: simulated, on its own testbeds."""
    own = set(profiles)
    return all(
        m.identity["fabric"] == "sim"
        and m.identity["profile"] in own
        and not m.identity["overrides"]
        for m in measurements
    )
