"""Deciders: judge a claim by an experiment's data.

Each helper returns a decider for `Experiment.decides`. ``**where`` fixes parameters by name; a
list matches any of its values. Where the data lack the requested rows, the verdict is
``not evaluated`` with the reason. A user's own function is a decider too::

    def onset(data: Data, claim: Claim) -> decide.Decision:
        rate = data.series("rate", over="clients", series="verbs")
        return decide.Decision(holds=rate.idxmax() > 100, measured=float(rate.idxmax()))
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from .arguments import Between, FilePath, checked, shown
from .data import Data, NotEvaluated
from .errors import InvalidArgument, nearest
from .result import Value
from .units import convert

if TYPE_CHECKING:
    from .claims import Claim

__all__ = [
    "Decider",
    "Decision",
    "NotEvaluated",
    "ProfileValue",
    "all_of",
    "best",
    "by_construction",
    "cause",
    "crossover",
    "extreme",
    "flat",
    "profile",
    "rank",
    "ratio",
    "trend",
    "value",
]

Point = Mapping[str, Value | Sequence[Value]]

Share = Annotated[float, Between(0)]
"""A fraction, which may be above 1."""


def _keywords(point: Point) -> dict[str, Any]:
    """Return a point as keyword arguments; mypy would match a Mapping with `unit`, too."""
    return dict(point)


@dataclass(frozen=True)
class Decision:
    """The decision of a decider about a claim.

    Parameters
    ----------
    holds
        Whether the claim holds; None leaves it to the claim's value, bound and tolerance.
    measured
        The number in the claim's unit, or a short text such as an order.
    reason
        One line, displayed beside the verdict.
    """

    holds: bool | None
    measured: float | str | None = None
    reason: str = ""


Decider = Callable[[Data, "Claim"], Decision | float | bool]
"""Judges a claim by the data: a `Decision`, the measured number, or whether the claim holds."""


@checked
def value(metric: str, **where: Any) -> Decider:
    """Compare one point's `metric` with the claim's number."""

    def decide(data: Data, claim: Claim) -> float:
        return data.value(metric, claim.unit, **where)

    return decide


@checked
def extreme(metric: str, over: str, pick: Literal["max", "min"] = "max", **where: Any) -> Decider:
    """Compare the largest (or smallest) `metric` along the parameter `over` with the claim."""

    def decide(data: Data, claim: Claim) -> Decision:
        series = data.series(metric, over, claim.unit, **where)
        at = series.idxmax() if pick == "max" else series.idxmin()
        return Decision(None, float(series[at]), f"at {over} {at}")

    return decide


_FORMS: dict[str, Callable[[float, float], float]] = {
    "ratio": lambda a, b: a / b,
    "excess": lambda a, b: a / b - 1,
    "loss": lambda a, b: 1 - a / b,
}


@checked
def ratio(
    metric: str,
    of: Point,
    to: Point,
    form: Literal["ratio", "excess", "loss"] = "ratio",
    to_metric: str | None = None,
    **where: Any,
) -> Decider:
    """Compare two points of `metric` with each other.

    Parameters
    ----------
    of, to
        Parameters of the numerator and of the denominator, in addition to `where`.
    form
        ``ratio`` is a/b, ``excess`` a/b - 1, ``loss`` 1 - a/b; converted to the claim's unit
        (percent, x).
    to_metric
        Metric of the denominator, if it differs.
    """

    def decide(data: Data, claim: Claim) -> Decision:
        a = data.value(metric, **where, **_keywords(of))
        other = to_metric or metric
        b = data.value(other, **where, **_keywords(to))
        b = convert(b, data.unit(other), data.unit(metric))
        if b == 0:
            raise NotEvaluated(f"{other} is zero at {dict(to)}")
        measured = convert(_FORMS[form](a, b), "x", claim.unit)
        return Decision(None, measured, f"{a:.4g} to {b:.4g} {data.unit(metric)}")

    return decide


@checked
def rank(metric: str, order: Sequence[Point], slack: Share = 0.0, **where: Any) -> Decider:
    """Check that `metric` falls from each point of `order` to the next (largest first).

    `slack` lets a point exceed its predecessor by that fraction (for "at least as good").
    """

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        found = [data.value(metric, **where, **_keywords(point)) for point in order]
        holds = all(
            b < a * (1 + slack) if slack == 0 else b <= a * (1 + slack) for a, b in pairwise(found)
        )
        unit = data.unit(metric)
        names = [" ".join(str(v) for v in point.values()) for point in order]
        text = "; ".join(f"{n} {v:.4g}" for n, v in zip(names, found, strict=True))
        return Decision(holds, f"{text} {unit}")

    return decide


@checked
def best(metric: str, by: str, winner: Any, pick: Literal["max", "min"], **where: Any) -> Decider:
    """Check that among the values of the parameter `by`, `winner` has the best `metric`."""

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        series = data.series(metric, by, **where)
        if winner not in series.index:
            raise NotEvaluated(f"{metric} was not measured at {by}={winner}")
        found = series.idxmax() if pick == "max" else series.idxmin()
        return Decision(found == winner, f"{found} {series[found]:.4g} {data.unit(metric)}")

    return decide


@checked
def trend(
    metric: str,
    over: str,
    direction: Literal["rises", "falls"],
    slack: Share = 0.05,
    by: Share = 0.0,
    **where: Any,
) -> Decider:
    """Check that `metric` rises (falls) along the parameter `over`.

    Parameters
    ----------
    slack
        Fraction by which a step may go against the direction.
    by
        Least change from the first to the last value, as a fraction of the first.
    """

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        series = data.series(metric, over, **where)
        if len(series) < 2:
            raise NotEvaluated(f"{metric} was measured at only one value of {over}")
        numbers = [float(v) for v in series]
        steps = list(pairwise(numbers))
        first, last = numbers[0], numbers[-1]
        if direction == "rises":
            holds = all(b >= a * (1 - slack) for a, b in steps) and last > first * (1 + by)
        else:
            holds = all(b <= a * (1 + slack) for a, b in steps) and last < first * (1 - by)
        unit = data.unit(metric)
        return Decision(holds, f"{first:.4g} to {last:.4g} {unit} over {len(series)} {over}")

    return decide


@checked
def flat(metric: str, over: str, within: Share = 0.25, **where: Any) -> Decider:
    """Check that `metric` stays within the fraction `within` of its first value."""

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        series = data.series(metric, over, **where)
        if len(series) < 2:
            raise NotEvaluated(f"{metric} was measured at only one value of {over}")
        first = float(series.iloc[0])
        spread = max(abs(float(v) / first - 1) for v in series)
        return Decision(spread <= within, f"within {spread:.0%} of {first:.4g} {data.unit(metric)}")

    return decide


@checked
def crossover(
    metric: str,
    over: str,
    a: Point,
    b: Point,
    when: Literal["above", "below"] = "above",
    **where: Any,
) -> Decider:
    """Find where `metric` of `a` first is `when` (above or below) that of `b`, along `over`.

    The measured value is that value of `over`; it is compared with the claim's number. Values of
    `over` must be in the claim's unit.
    """
    compare = operator.gt if when == "above" else operator.lt

    def decide(data: Data, claim: Claim) -> Decision | float:  # noqa: ARG001 - as above
        first = data.series(metric, over, **where, **_keywords(a))
        second = data.series(metric, over, **where, **_keywords(b))
        shared = [x for x in first.index if x in second.index]
        if not shared:
            raise NotEvaluated(f"the two series have no value of {over} in common")
        for x in shared:
            if compare(float(first[x]), float(second[x])):
                return float(x)
        return Decision(False, None, f"not {when} at any {over} up to {shared[-1]}")

    return decide


Pair = tuple[Point, Point]
"""The point that is ahead, and the one behind."""

EXPLAINED = 0.5
"""Least share of a lead that must go with its cause."""


@checked
def cause(metric: str, ahead: Pair, without: Pair, reason: str = "", **where: Any) -> Decider:
    """Decide a supposed cause of a rank by ablation.

    `ahead` is the rank, two points of which the first has the higher `metric`. `without` is the
    same pair with the cause taken away from one of them. The claim holds if the first is ahead and
    at least half of its lead goes with the cause. A lead is the mean logarithm of the ratio, over
    all values of the parameters that neither the pairs nor `where` fix.

    Parameters
    ----------
    reason
        One line, displayed beside the verdict.
    """

    def decide(data: Data, claim: Claim) -> Decision:  # noqa: ARG001 - a decider's signature
        fixed = {*where, *(name for point in (*ahead, *without) for name in point)}
        over = [name for name in data.parameters if name not in fixed]
        over += [name for name, wanted in where.items() if isinstance(wanted, (list, tuple))]
        ratios = [_ratios(data, metric, pair, over, where) for pair in (ahead, without)]
        shared = ratios[0].keys() & ratios[1].keys()
        if not shared:
            raise NotEvaluated("the pairs with and without the cause have no point in common")
        lead, rest = (sum(math.log(found[at]) for at in shared) / len(shared) for found in ratios)
        text = f"{math.exp(lead):.2f} times, {math.exp(rest):.2f} without the cause"
        holds = lead > 0 and lead - rest >= EXPLAINED * lead
        note = f"at {len(shared)} points" if lead > 0 else "there is no lead to explain"
        return Decision(holds, text, f"{note}; {reason}" if reason else note)

    return decide


def _ratios(
    data: Data, metric: str, pair: Pair, over: Sequence[str], where: Mapping[str, Any]
) -> dict[tuple[Any, ...], float]:
    """Return the ratio of a pair's points at each value of the parameters `over`."""

    def medians(point: Point) -> dict[tuple[Any, ...], float]:
        values: dict[tuple[Any, ...], list[float]] = {}
        rows = data.select(metric, **where, **_keywords(point))
        for *at, value in rows[[*over, "value"]].itertuples(index=False):
            values.setdefault(tuple(at), []).append(value)
        return {at: statistics.median(found) for at, found in values.items()}

    a, b = medians(pair[0]), medians(pair[1])
    return {at: a[at] / b[at] for at in a if at in b}


@dataclass(frozen=True)
class Conjunction:
    """A decider of a claim that states other claims again: it holds if all of them hold."""

    claims: Mapping[str, Decider]

    def __call__(self, data: Data, claim: Claim) -> Decision:
        """Decide each of the claims."""
        found = [decider(data, claim) for decider in self.claims.values()]
        holds = [d.holds if isinstance(d, Decision) else d for d in found]
        if not all(isinstance(h, bool) for h in holds):
            raise NotEvaluated("only claims that code decides can be stated again")
        names = [name.partition("/")[2] for name in self.claims]
        text = ", ".join(
            f"{name} {'holds' if h else 'does not'}" for name, h in zip(names, holds, strict=True)
        )
        return Decision(all(holds), text)


@checked
def all_of(claims: Mapping[str, Decider]) -> Conjunction:
    """Decide a claim that states other claims again, given with their deciders by id.

    `pyrdma claims` displays its verdict, but does not count it: its data count with the others.
    """
    return Conjunction(dict(claims))


@dataclass(frozen=True)
class ByConstruction:
    """A decider of a claim that the model or the experiment was built to hold."""

    decider: Decider
    reason: str

    def __call__(self, data: Data, claim: Claim) -> Decision | float | bool:
        """Decide by the wrapped decider."""
        return self.decider(data, claim)


@checked
def by_construction(decider: Decider, reason: str) -> ByConstruction:
    """Mark a claim that holds by construction, so that it does not count as a prediction.

    Its verdict is ``by construction`` instead of ``held``.

    Parameters
    ----------
    reason
        What makes the claim hold, displayed beside the verdict.
    """
    return ByConstruction(decider, reason)


@checked
@dataclass(frozen=True)
class ProfileValue:
    """A decider without a measurement: the profile itself holds the paper's number.

    The verdict is ``by construction`` instead of ``held``.
    """

    key: str
    unit: str | None = None
    name: str | None = None
    scale: float = 1.0

    @checked
    def read(self, profile_name: FilePath, claim: Claim) -> float:
        """Return the profile's value in the claim's unit."""
        from .profiles import Profile

        loaded = Profile.load(self.name or profile_name)
        if self.key in ("nodes", "cores_per_node"):
            return float(getattr(loaded, self.key)) * self.scale
        parameter = loaded.parameters[self.key]
        return convert(parameter.value * self.scale, self.unit or parameter.unit, claim.unit)

    def __call__(self, data: Data, claim: Claim) -> float:
        """Return the value for the profile that the data were measured with."""
        names = data.frame["profile"].unique().tolist()
        if len(names) != 1:
            raise NotEvaluated("the data come from several profiles; choose one")
        return self.read(str(names[0]), claim)


@checked
def profile(
    key: str, *, unit: str | None = None, profile: str | None = None, scale: float = 1.0
) -> ProfileValue:
    """Compare a parameter of the profile with the claim's number.

    Parameters
    ----------
    key
        ``table.parameter``, or ``nodes`` or ``cores_per_node``.
    unit
        Unit in which to read the value, if the profile's is not one of `pyrdma.units`.
    profile
        Name of the profile; default: the experiment's.
    scale
        Factor applied first, for example 2 for both directions.
    """
    from .profiles import parameters

    known = ("nodes", "cores_per_node", *parameters())
    if key not in known:
        raise InvalidArgument(
            f"key is {shown(key)}, no parameter of a profile{nearest(key[:100], known)}"
        )
    return ProfileValue(key, unit, profile, scale)
