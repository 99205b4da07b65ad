"""A file that declares a protocol of node programs, for ``pyrdma fuzz`` and ``pyrdma replay``.

The file defines the module-level name ``protocol``::

    import pyrdma as rd

    async def server(node): ...

    async def client(node): ...

    protocol = rd.Protocol(programs={0: server, "rest": client}, nodes=5, model="register")

Each seed runs the programs on a simulated cluster under faults of its own, and has one verdict: an
error of a program, a history that the model does not explain, or what `Protocol.check` finds. The
file is loaded anew for each seed, so its module-level variables begin anew.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import faults as kinds_of_faults
from . import timeline as timelines
from ._program import by_node, checked_model
from .arguments import Between, Duration, checked, shown
from .check import check as check_history
from .cluster import Cluster
from .errors import Error, InvalidArgument, Timeout
from .faults import OF_ALL_KINDS
from .registry import import_file, located

if TYPE_CHECKING:
    from .cluster import SimulatedCluster
    from .fuzz import Options
    from .result import Result

__all__ = ["Protocol", "is_file", "load", "run", "shorter"]

CONFIGURATIONS = 100_000
"""Bound of the search of a history, as for native systems."""


@checked
@dataclass(frozen=True)
class Protocol:
    """Node programs, and how each seed of ``pyrdma fuzz FILE`` runs and judges them.

    Parameters
    ----------
    programs
        What `ClusterBase.program` takes, or a plain function that returns it for a number of nodes.
    nodes
        Number of nodes.
    model
        Model of the history that ``node.invoke`` records, for `pyrdma.check`; none if empty.
    duration_s
        Virtual time after which a run ends in good order, for programs without an end of their own.
    deadline_s
        Virtual time after which a run without `duration_s` fails.
    kinds
        Kinds of faults, of which each seed draws a random subset; all if None.
    faults
        Settings that all seeds have instead, as ``{"loss.rate": 0.01}``.
    heal_s
        Virtual time after which all faults end.
    check
        A function of the result and of the cluster. It raises an AssertionError, or returns texts
        of what is wrong.
    """

    programs: Any
    nodes: Annotated[int, Between(2, 32)] = 5
    model: str = ""
    duration_s: Duration | None = None
    deadline_s: Duration = 1.0
    kinds: tuple[str, ...] | None = None
    faults: Mapping[str, float] | None = None
    heal_s: Duration = 0.02
    check: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.programs) and not isinstance(self.programs, Mapping):
            raise InvalidArgument(
                f"programs is {shown(self.programs)}; give an `async def` function, functions by "
                "node, or a function that returns them for a number of nodes"
            )
        try:
            if isinstance(self.programs, Mapping):
                by_node(self.programs, self.nodes)
        except InvalidArgument as error:
            raise InvalidArgument(f"programs: {error}") from None
        if self.model:
            checked_model(self.model)
        known = {row["key"] for row in kinds_of_faults.table()}
        for name, given in (("kinds", self.kinds), ("faults", self.faults)):
            for key in given or ():
                if str(key).split(".")[0] not in known:
                    raise InvalidArgument(
                        f"{name} has {shown(key)}; `pyrdma.faults.table()` lists the kinds"
                    )

    def _programs_of(self, nodes: int) -> Any:
        """Return the programs of a cluster with so many nodes."""
        function = getattr(self.programs, "func", self.programs)
        if isinstance(self.programs, Mapping) or inspect.iscoroutinefunction(function):
            return self.programs
        return self.programs(nodes)

    def _faults_of(self, seed: int) -> dict[str, float]:
        """Return the settings of the faults of a seed."""
        if self.faults is not None:
            return dict(self.faults)
        drawn = kinds_of_faults.random(seed)
        return {
            key: value
            for key, value in drawn.items()
            if self.kinds is None or key.split(".")[0] in self.kinds
        }


def is_file(system: str) -> bool:
    """Whether `system` names a file of a protocol, not a native system."""
    return system.endswith(".py")


def load(path: str) -> Protocol:
    """Return the protocol of a file, whose code runs.

    Raises
    ------
    InvalidArgument
        There is no such file, or it declares no protocol.
    Error
        The file cannot be loaded; the message names file and line.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidArgument(f"no such file of a protocol: {file}")
    try:
        module = import_file(file)
    except (Exception, SystemExit) as error:
        kind = InvalidArgument if isinstance(error, InvalidArgument) else Error
        raise kind(located(error, file)) from error
    found = getattr(module, "protocol", None)
    if not isinstance(found, Protocol):
        raise InvalidArgument(
            f"{file}: `protocol` is {shown(found)}; write protocol = pyrdma.Protocol(...) in the "
            "file"
        )
    return found


def faults_of(options: Options, seed: int) -> dict[str, float]:
    """Return the settings of the faults of a seed of a file."""
    drawn = load(options.system)._faults_of(seed) if options.faults is None else options.faults
    if options.kinds is None:
        return dict(drawn)
    kept = {*options.kinds, *OF_ALL_KINDS}
    return {k: v for k, v in drawn.items() if k.split(".")[0] in kept}


def run(
    options: Options,
    seed: int,
    *,
    trace: bool = False,
    history: bool = False,
    events: bool = False,
    timeline: timelines.Options | None = None,
) -> dict[str, Any]:
    """Run one seed of a file, as `pyrdma.fuzz.run` does one of a native system."""
    file = Path(options.system)
    protocol = load(options.system)
    settings = faults_of(options, seed)
    kinds = [*dict.fromkeys(k.split(".")[0] for k in settings if k not in OF_ALL_KINDS)]
    if kinds:
        settings.setdefault("heal_at_ns", protocol.heal_s * 1e9)
    duration_s = options.duration_s or protocol.duration_s
    text = b""
    violation: tuple[str, str] | None = None
    undecided: list[str] = []
    with Cluster.sim(
        options.nodes or protocol.nodes,
        options.profile,
        seed,
        memory="strong" if options.weak is False else "weak",
        faults=settings,
    ) as cluster:
        recording = cluster._open
        if trace or events:
            recording.start_timeline(*timelines.WHOLE_PS)
        elif timeline is not None:
            recording.start_timeline(*timeline.range_ps())
        try:
            result = cluster.program(
                protocol._programs_of(options.nodes or protocol.nodes),
                deadline_s=protocol.deadline_s,
                duration_s=duration_s,
                model=protocol.model,
            )
            text = result.history() if result.histories else b""
        except (Exception, SystemExit) as error:
            violation = "liveness" if _is_liveness(error) else "error", located(error, file)
        else:
            violation = _judged(protocol, result, cluster, text, undecided, file)
        recorded = None
        if trace or events or timeline is not None:
            recorded = recording.stop_timeline()
        counters = cluster.fault_counters()
        steps, now_ns = cluster.events, cluster.now_ns
        digest = hashlib.blake2b(b"%d " % cluster.fingerprint + text, digest_size=8)
    lines = _lines(recorded) if trace or events else []
    if lines and timeline is not None:  # it has a window and a limit of its own
        recorded = run(options, seed, timeline=timeline)["timeline"]
    types = Counter(json.loads(line).get("type") for line in text.splitlines())
    return {
        "seed": seed,
        "fingerprint": int.from_bytes(digest.digest(), "big"),
        "virtual_ns": now_ns,
        "events": steps,
        **{name: types[name] for name in ("ok", "fail", "info")},
        "kinds": kinds,
        "fired": {key: fired for key, (fired, _) in counters.items() if fired},
        "reached": {key: reached for key, (fired, reached) in counters.items() if fired},
        "violations": [violation] if violation else [],
        "undecided": undecided,
        "histories": [(protocol.model, text.decode())] if history and text else [],
        "trace": [f"{ps / 1000:.3f} ns  {place}: {what}" for ps, place, what in lines],
        "recorded": lines,
        "timeline": recorded,
    }


def _lines(recorded: Any) -> list[tuple[int, str, str]]:
    """Return time in ps, place and text of each slice and mark of a native timeline, by time."""
    pieces: list[bytes] = []
    recorded.write(pieces.append)
    rows = json.loads(b"".join(pieces))["traceEvents"]
    named = [row for row in rows if row["ph"] == "M"]
    nodes = {r["pid"]: r["args"]["name"] for r in named if r["name"] == "process_name"}
    threads = {r["tid"]: r["args"]["name"] for r in named if r["name"] == "thread_name"}
    found = [
        (round(row["ts"] * 1e6), f"{nodes[row['pid']]}, {threads[row['tid']]}", _text_of(row))
        for row in rows
        if row["ph"] in ("X", "i") and row["tid"] in threads
    ]
    return sorted(found, key=lambda line: line[0])


def _text_of(row: Mapping[str, Any]) -> str:
    about = [f"{name} {value}" for name, value in row.get("args", {}).items()]
    lasts = [f"for {row['dur'] * 1000:g} ns"] if "dur" in row else []
    return ", ".join([row["name"], *about, *lasts])


def _is_liveness(error: BaseException) -> bool:
    return isinstance(error, Timeout) or "wait for each other" in str(error)


def _judged(
    protocol: Protocol,
    result: Result,
    cluster: SimulatedCluster,
    history: bytes,
    undecided: list[str],
    file: Path,
) -> tuple[str, str] | None:
    """Return the violation of a run whose programs have ended, as kind and text."""
    if protocol.model and history:
        try:
            verdict = check_history(history, protocol.model, configurations=CONFIGURATIONS)
        except InvalidArgument as error:  # such as an operation that a process never ended
            return "error", str(error)
        if verdict.answer == "no":
            return protocol.model, verdict.text.rstrip()
        if verdict.answer == "unknown":
            undecided.append(protocol.model)
    if protocol.check is None:
        return None
    try:
        problems = protocol.check(result, cluster) or ()
    except Exception as error:
        return "check", located(error, file)
    text = problems if isinstance(problems, str) else "; ".join(map(str, problems))
    return ("check", text) if text else None


def _is_enough(protocol: Protocol, nodes: int) -> bool:
    """Return whether each node that the protocol names is among so many."""
    try:
        protocol._programs_of(nodes)
    except InvalidArgument:
        return False
    return True


def shorter(
    options: Options,
    fails: Callable[[Options], bool],
    virtual_ns: int,
    progress: Callable[[str], None] | None,
) -> Options:
    """Return options with fewer nodes and a shorter run, which still fails."""
    protocol = load(options.system)
    nodes = options.nodes or protocol.nodes
    few = (replace(options, nodes=n) for n in range(2, nodes) if _is_enough(protocol, n))
    options = next((candidate for candidate in few if fails(candidate)), options)
    if progress is not None:
        progress(f"{options.nodes or nodes} nodes are needed")
    low, high = 0, virtual_ns  # a run of `low` ns does not fail
    shortest = options
    while high - low > max(1000, high // 100):
        middle = (low + high) // 2
        candidate = replace(options, duration_s=middle / 1e9)
        if fails(candidate):
            shortest, high = candidate, middle
        else:
            low = middle
    if progress is not None:
        progress(f"{high} ns are needed")
    return shortest
