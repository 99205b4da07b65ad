"""An experiment file declares axes, the measurement of a point, a figure and claims.

One Python file under ``experiments/<paper>/`` declares one experiment::

    from pyrdma import Axis, Experiment, Point, decide, workload

    def measure(point: Point):
        with point.cluster(nodes=2) as cluster:
            load = workload.VerbsLoad(op="read", size=point["size"], mode="latency")
            return cluster.run(load, duration_s=point.duration(0.001, full_s=0.01))

    def figure(data, claims):
        fig, ax = figures.new()
        figures.line(ax, data, "read_latency_p50", over="size", unit="us")
        figures.overlay(ax, [(claims["spindle/cal_write_latency_1b"], 1)])
        return fig

    experiment = Experiment(
        id="spindle/fig1",
        title="Latency of one write against its size",
        profile="spindle",
        axes={"size": Axis([1, 4096], full=[1, 64, 1024, 4096, 16384], unit="B")},
        measure=measure,
        figure=figure,
        decides={"spindle/cal_write_latency_1b": decide.value("write_latency_p50", size=1)},
    )

The file defines the module-level name ``experiment``. Its import measures nothing.
"""

from __future__ import annotations

import itertools
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from ._shapes import is_value
from .arguments import Between, Count, Seconds, Seed, checked, shown
from .data import check_name
from .errors import InvalidArgument, Unavailable, nearest
from .fabrics import FABRICS
from .result import Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .claims import Claim
    from .cluster import Cluster
    from .data import Data
    from .decide import Decision
    from .hosts.fleet import Fleet

__all__ = ["Axis", "Experiment", "Point", "Value"]

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def parse_value(text: str) -> Value:
    """Return the bool, the number or the text that a text stands for."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def plain(value: Any) -> Any:
    """Return a scalar of NumPy as Python's, which JSON has, and any other value as it is."""
    return value.item() if hasattr(value, "item") else value


@checked
@dataclass(frozen=True)
class Axis:
    """The values that one parameter takes.

    Parameters
    ----------
    quick
        Values of a quick run, which must show the figure's shape within seconds.
    full
        Values of a full run; `quick` if left out.
    unit
        Unit of the values, for labels and error messages.
    """

    quick: Sequence[Value]
    full: Sequence[Value] = ()
    unit: str = ""

    @checked
    def values(self, quick: bool) -> Sequence[Value]:
        """Return the values of a quick or of a full run."""
        return self.quick if quick or not self.full else self.full


@checked
@dataclass(frozen=True)
class Point:
    """One point of an experiment's sweep: its parameters, fabric, profile and seed.

    ``point["size"]`` is a parameter. ``profile`` and ``series`` are ordinary axes, but a
    ``profile`` axis also chooses the profile that `cluster` uses.
    """

    experiment: str
    params: Mapping[str, Value]
    fabric: str = "sim"
    profile: str = ""
    overrides: Mapping[str, float] = field(default_factory=dict)
    seed: Seed = 1
    repetition: Annotated[int, Between(0, 10**6)] = 0
    quick: bool = True

    def __getitem__(self, name: str) -> Any:
        if name not in self.params:
            known = ", ".join(self.params)
            raise InvalidArgument(
                f"{self.experiment}: no parameter {name!r}; the axes are {known}"
                + nearest(name, self.params)
            )
        return self.params[name]

    @checked
    def duration(self, quick_s: Seconds, full_s: Seconds | None = None) -> float:
        """Return the time to measure, in seconds of the fabric's clock."""
        return quick_s if self.quick or full_s is None else full_s

    def cluster(self, nodes: int, **options: Any) -> Cluster:
        """Open a cluster of `nodes` nodes on this point's fabric, profile and seed.

        `options` go to `Cluster.sim`, `Cluster.local`, or `Cluster.remote` if the run has an
        inventory. The method drops the options that the
        fabric lacks: ``mode`` on ``sim``, ``overrides`` and ``variance`` on the others. On ``sim``
        the default is ``variance=True``, and False for weak memory, which checks correctness.
        """
        from .cluster import Cluster

        if self.fabric == "sim":
            options.pop("mode", None)
            options.setdefault("variance", options.get("memory") != "weak")
            overrides = {**dict(options.pop("overrides", {})), **self.overrides}
            return Cluster.sim(
                nodes=nodes, profile=self.profile, seed=self.seed, overrides=overrides, **options
            )
        options.pop("overrides", None)
        options.pop("variance", None)
        fleet = _fleet()
        if fleet is not None:
            options.pop("device", None)
            if options.pop("mode", "process") == "thread":
                raise Unavailable(
                    f"{self.experiment} needs its nodes as threads of one process, and the hosts "
                    "of an inventory hold processes; run it without --inventory on a host"
                )
            return Cluster.remote(fleet, nodes, fabric=self.fabric, seed=self.seed, **options)
        return Cluster.local(nodes=nodes, fabric=self.fabric, seed=self.seed, **options)


def _fleet() -> Fleet | None:
    """Return the hosts of this run; None if its nodes are on this machine."""
    loaded = sys.modules.get("pyrdma.hosts.fleet")
    return None if loaded is None else loaded.current()


@checked
@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper, or a micro-benchmark of the fabric.

    Parameters
    ----------
    id
        ``<paper>/<figure>`` as in the claims files; also the file's path under ``experiments``.
    title
        One line for ``pyrdma list`` and the figure's title.
    profile
        Profile of the paper's testbed. Only results of this profile, or of the ``profile`` axis,
        decide claims.
    measure
        Function of a `Point` that returns a `Result`, ``{metric: value}``,
        ``{metric: (value, unit)}``, or a list of `pyrdma.Row`. None for an inventory (a table of
        the testbed) whose claims the profile decides.
    axes
        Parameters and their values. A sweep is their product; the first axis changes slowest.
    where
        Predicate on the parameters; it is false for points that the sweep leaves out.
    figure
        Function of `Data` and of the paper's claims by id that returns a Matplotlib figure.
    decides
        Claim id -> decider: one of `pyrdma.decide`'s, or a function of `Data` and `Claim` that
        returns a number in the claim's unit, a bool, or a `decide.Decision`. It raises
        `decide.NotEvaluated`, as the helpers do, where the data do not decide the claim.
    misses
        Claim id -> reason for its miss, displayed with the verdict. A calibration claim may miss
        where the model, or another claim, contradicts it. A missed calibration claim without a
        reason fails the tests, and so does a reason for one that holds.
    fabrics
        Fabrics on which the experiment can run; the first is the default.
    why_not
        Reasons that pyrdma prints for the other fabrics, as
        ``{"shm": "no simulated switch to congest"}``.
    max_repetitions
        Most repetitions of a point on a real-time fabric. In ``sim`` a point runs once.
    target
        Metric that ends the repetitions on a real-time fabric: a point is repeated until the 95 %
        confidence interval of the metric's median is within 5 % of the median, or
        `max_repetitions` is reached. None: two repetitions when quick, `max_repetitions` when full.
    """

    id: str
    title: str
    profile: str
    measure: Callable[[Point], Any] | None
    axes: Mapping[str, Axis] = field(default_factory=dict)
    where: Callable[[Mapping[str, Value]], bool] | None = None
    figure: Callable[[Data, Mapping[str, Claim]], Figure] | None = None
    decides: Mapping[str, Callable[[Data, Claim], Decision | float | bool]] = field(
        default_factory=dict
    )
    misses: Mapping[str, str] = field(default_factory=dict)
    fabrics: Sequence[str] = FABRICS
    why_not: Mapping[str, str] = field(default_factory=dict)
    max_repetitions: Count = 10
    target: str | None = None

    def __post_init__(self) -> None:
        if not ID.fullmatch(self.id):
            raise InvalidArgument(
                f"experiment id {shown(self.id)} is not <paper>/<figure>, two names of letters, "
                "digits and . _ - that begin with a letter or digit"
            )
        for fabric in self.fabrics:
            if fabric not in FABRICS:
                raise InvalidArgument(
                    f"{self.id}: unknown fabric {shown(fabric)}; one of {FABRICS}"
                )
        for claim, reason in self.misses.items():
            if claim not in self.decides:
                raise InvalidArgument(f"{self.id}: misses has {shown(claim)}, which decides lacks")
            if not reason.strip():
                raise InvalidArgument(f"{self.id}: misses gives no reason for {claim}")
        for name, axis in self.axes.items():
            if name != "profile":  # it chooses the profile, whose column it is
                check_name(name, f"{self.id}: an axis")
            if not axis.quick:
                raise InvalidArgument(f"{self.id}: axis {name!r} has no values")
            for value in [*axis.quick, *axis.full]:
                if not is_value(value):
                    raise InvalidArgument(
                        f"{self.id}: axis {name!r} has the value {value!r}; give texts, bools or "
                        "finite numbers"
                    )
            for values in (axis.quick, axis.full):
                self._check_once(name, values)

    def _check_once(self, name: str, values: Sequence[Value]) -> None:
        """Raise if a value stands twice in an axis."""
        twice = next((v for n, v in enumerate(values) if v in values[:n]), None)
        if twice is not None:
            raise InvalidArgument(
                f"{self.id}: axis {name!r} has the value {shown(twice)} twice, so its points would "
                "be measured twice and count double; give each value once, and for several "
                "measurements of a point --seeds or --repetitions"
            )

    def _chosen(self, name: str, wanted: Value | Sequence[Value]) -> Sequence[Value]:
        """Return the values to which a setting fixes an axis."""
        axis = self.axes[name]
        known = [*axis.quick, *axis.full]
        if isinstance(wanted, str) and wanted not in known and "," in wanted:
            wanted = [parse_value(part.strip()) for part in wanted.split(",")]
        values = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else wanted
        # An equal value of another type, such as True for 1, would be another point.
        values = [next((k for k in known if k == v), plain(v)) for v in values]
        if not values:
            raise InvalidArgument(f"{self.id}: axis {name!r} is set to no value; give one or more")
        texts = [v for v in values if isinstance(v, str)]
        if texts and not any(isinstance(v, str) for v in known):
            raise InvalidArgument(
                f"{self.id}: axis {name!r} is set to {shown(texts[0])}, and its values are numbers "
                f"or bools; give such values, as {', '.join(map(str, known[:3]))}"
            )
        self._check_once(name, values)
        return values

    def _is_point(self, params: Mapping[str, Value]) -> bool:
        try:
            return self.where is None or bool(self.where(params))
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise InvalidArgument(
                f"{self.id}: where() failed for {shown(params)}: {type(error).__name__}: {error} "
                f"({at.filename}, line {at.lineno})"
            ) from error

    @checked
    def points(
        self,
        *,
        quick: bool = True,
        fabric: str | None = None,
        profile: str | None = None,
        overrides: Mapping[str, float] | None = None,
        seed: Seed = 1,
        settings: Mapping[str, Value | Sequence[Value]] | None = None,
    ) -> Iterator[Point]:
        """Yield the points of a sweep in the order of the axes.

        `settings` fixes parameters: an axis that it names takes that value, or those of a list or
        of a text with commas.

        Raises
        ------
        InvalidArgument
            A setting names no axis, or gives a value twice, or a text to an axis of numbers.
        """
        fixed = dict(settings or {})
        for name in fixed:
            if name not in self.axes:
                known = ", ".join(self.axes) or "none"
                raise InvalidArgument(
                    f"{self.id}: no parameter {shown(name)}{nearest(name[:100], self.axes)}; "
                    f"axes: {known}"
                )
        names = list(self.axes)
        lists = [
            self._chosen(n, fixed[n]) if n in fixed else self.axes[n].values(quick) for n in names
        ]
        for values in itertools.product(*lists):
            params = dict(zip(names, values, strict=True))
            if not self._is_point(params):
                continue
            axis_profile = params.get("profile")
            yield Point(
                experiment=self.id,
                params=params,
                fabric=fabric or self.fabrics[0],
                profile=profile or (str(axis_profile) if axis_profile else self.profile),
                overrides=dict(overrides or {}),
                seed=seed,
                quick=quick,
            )
