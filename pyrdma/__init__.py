"""Benchmarks and experiments for RDMA systems: simulated, over shared memory, on real NICs.

>>> import pyrdma as rd
>>> with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
...     result = cluster.run(rd.workload.VerbsLoad(op="read", size=8), duration_s=0.001)
>>> result.value("rate")  # doctest: +SKIP

Importing is cheap: the native module, tables and figures are loaded when first used.

The modules form layers. A module imports from its own layer or from a lower one, never in a circle:

    commands, bench, notebook                 the command line, the project's own speed, notebooks
    fuzz, fuzz_summary, calibrate, cloudlab, deploy  tools that need no experiment
    protocol                                  node programs that are fuzzed
    check                                     histories
    validate, validation_figure               a real fabric beside its simulation
    sharing                                   reports and archives of results
    predictions, published                    verdicts, counted; the papers' numbers by point
    claims, estimates, runs, comparison       experiments: judged by the papers, run and drawn
    options                                   what a run is asked to measure
    executors                                 places elsewhere that measure points
    evidence, judging, basis, sensitivity     what judges a claim; verdicts under changed profiles
    results, table, sweep, realtime, captions points: a sweep of them, a table of them
    points, store, reach, registry, executors.same_code  one point: measured, kept, found again
    experiment, workload                      one experiment's declaration; every workload
    systems                                   objects, workloads and benchmarks of each system
    bench.benchmark, bench.awaited, bench.peer, bench.peers  one benchmark and its peer
    validation                                declaration of one number that both worlds show
    cluster                                   nodes on this machine and on others
    program                                   what node programs await
    hosts                                     machines of a testbed, their daemons and nodes
    doctor                                    what a machine lacks
    cluster_base, processes                   nodes, and the processes they run in
    places                                    where results were measured
    fabrics, devices                          where the nodes run
    conditions                                what a measurement is worth
    decide, figures, data, result, profiles   numbers: measured, drawn, compared, assumed
    figure_layout, figure_names               places of a figure's legends and names
    delta_debugging                           a small part of a failing run that still fails
    workers, children                         other processes of Python
    trust, files, scratch, provenance, sources  whose files these are; safe reading and writing
    errors, arguments, units, extras          used by all layers
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import systems
from ._version import __version__
from .errors import (
    Cancelled,
    CompletionError,
    Error,
    Exhausted,
    HostLost,
    InvalidArgument,
    NodeEnded,
    Timeout,
    Unavailable,
)

if TYPE_CHECKING:
    from . import claims, data, decide, faults, figures, profiles, program, units, verbs, workload
    from .cluster import Cluster
    from .comparison import compare
    from .data import Data
    from .experiment import Axis, Experiment, Point
    from .profiles import Profile
    from .protocol import Protocol
    from .result import Result, Row
    from .results import load
    from .runs import run
    from .sharing.fetching import fetch
    from .systems import *  # noqa: F403

__all__ = [
    "Axis",
    "Cancelled",
    "Cluster",
    "CompletionError",
    "Data",
    "Error",
    "Exhausted",
    "Experiment",
    "HostLost",
    "InvalidArgument",
    "NodeEnded",
    "Point",
    "Profile",
    "Protocol",
    "Result",
    "Row",
    "Timeout",
    "Unavailable",
    "__version__",
    "claims",
    "compare",
    "data",
    "decide",
    "faults",
    "fetch",
    "figures",
    "load",
    "profiles",
    "program",
    "run",
    "units",
    "verbs",
    "workload",
    *systems.NAMES,
]

_MODULES = (
    "claims",
    "data",
    "decide",
    "faults",
    "figures",
    "profiles",
    "program",
    "units",
    "verbs",
    "workload",
)
_FROM = {
    "Axis": "experiment",
    "Cluster": "cluster",
    "Data": "data",
    "Experiment": "experiment",
    "Point": "experiment",
    "Profile": "profiles",
    "Protocol": "protocol",
    "Result": "result",
    "Row": "result",
    "compare": "comparison",
    "fetch": "sharing.fetching",
    "load": "results",
    "run": "runs",
}


def __getattr__(name: str) -> Any:
    """Load the part of the package that `name` is in, when it is first asked for."""
    if name in _MODULES or name in systems.NAMES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FROM:
        found = getattr(importlib.import_module(f"{__name__}.{_FROM[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
