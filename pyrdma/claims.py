"""Judge the papers' claims by the available results.

A claim is never edited to make it hold. This module judges numbers by one set of tolerances. The
code that the experiment declares judges ranks, trends and crossovers (`Experiment.decides`).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import registry, results
from .arguments import FilePath, check, checked, shown
from .data import Data, NotEvaluated
from .decide import Decision, ProfileValue
from .errors import Error, InvalidArgument, nearest
from .fabrics import FabricName
from .results import Stale

if TYPE_CHECKING:
    from .experiment import Experiment

__all__ = ["TOLERANCES", "VERDICTS", "Claim", "Verdict", "evaluate", "judge", "load", "undecided"]

TOLERANCES = {"exact": 0.10, "approx": 0.25, "average-over-sweep": 0.25, "peak-only": 0.15}
"""Largest distance of a measured number from the paper's, as a fraction, by the claim's hint."""

VERDICTS = ("missed", "held", "stale", "not evaluated")
"""Verdicts in the order of their display."""

_NO_EXPERIMENT = "no experiment"
DECIDER_FAILED = "the decider failed"
"""First words of the reason when the decider of a claim has a bug."""

_BOUND = re.compile(r"^(?:an? )?(upper|lower) bound|^(more than|at least|at most)\b")


class WrongDecider(UserWarning):
    """An experiment decides a claim that does not exist, or that another one decides."""


@dataclass(frozen=True)
class Claim:
    """One number, ranking, trend or crossover of a paper; ids are ``<paper>/<id>``."""

    id: str
    paper: str
    experiment: str
    kind: str
    role: str
    series: str
    params: Mapping[str, Any]
    metric: str
    value: Any
    unit: str
    tolerance_hint: str
    where: str
    note: str = ""

    @property
    def tolerance(self) -> float:
        """Fraction by which a measured number may differ."""
        return TOLERANCES[self.tolerance_hint]

    @property
    def bound(self) -> str | None:
        """``upper`` or ``lower`` where the paper states a bound instead of a value."""
        found = _BOUND.match(self.note)
        if not found:
            return None
        if found[1]:
            return found[1]
        return "upper" if found[2] == "at most" else "lower"

    @property
    def number(self) -> float | None:
        """The value if it is one number; the middle of a range; None for text."""
        if isinstance(self.value, list):
            return sum(self.value) / len(self.value)
        return None if isinstance(self.value, str) else float(self.value)


@dataclass(frozen=True)
class Verdict:
    """A claim's verdict, with the fields of ``pyrdma claims --json``."""

    claim: str
    paper: str
    experiment: str
    kind: str
    role: str
    verdict: str
    expected: Any
    measured: float | str | None
    unit: str
    reason: str

    @property
    def decidable(self) -> bool:
        """Whether an experiment decides the claim, with or without results."""
        return not self.reason.startswith(_NO_EXPERIMENT)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


@checked
def load(folder: FilePath | None = None) -> dict[str, Claim]:
    """Return all claims by id, from ``experiments/claims/*.yaml`` or another folder."""
    return _load(Path(folder) if folder is not None else registry.root() / "claims")


@cache
def _load(folder: Path) -> dict[str, Claim]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Claim] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            document = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
            claims = [_claim(document["paper"]["key"], entry) for entry in document["claims"]]
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
            what = f"{type(error).__name__}: {error}"
            raise Error(f"{path} is not a file of claims: {what}") from error
        found.update({claim.id: claim for claim in claims})
    return found


def _claim(paper: str, entry: Mapping[str, Any]) -> Claim:
    name = f"{paper}/{entry['id']}"
    if entry["tolerance_hint"] not in TOLERANCES:
        raise ValueError(f"{name} has the unknown tolerance {entry['tolerance_hint']!r}")
    try:
        experiment = f"{paper}/{entry['experiment']}"
        return Claim(**{**entry, "id": name, "paper": paper, "experiment": experiment})
    except (LookupError, TypeError) as error:
        raise ValueError(f"{name}: {type(error).__name__}: {error}") from error


def judge(claim: Claim, outcome: Decision | float | bool) -> tuple[str, float | str | None, str]:
    """Return verdict, measured value and reason of a decider's outcome."""
    if isinstance(outcome, bool):
        decision = Decision(outcome)
    elif isinstance(outcome, Decision):
        decision = outcome
    else:
        decision = Decision(None, float(outcome))
    holds, reason = decision.holds, decision.reason
    if holds is None:
        if not isinstance(decision.measured, (int, float)):
            raise NotEvaluated("the decider returned neither a number nor an answer")
        if not math.isfinite(decision.measured):
            raise NotEvaluated(f"the measured value is not a finite number: {decision.measured}")
        holds, rule = _within(claim, float(decision.measured))
        reason = f"{rule}; {reason}" if reason else rule
    return ("held" if holds else "missed"), decision.measured, reason


def _within(claim: Claim, measured: float) -> tuple[bool, str]:
    """Compare a number with the claim's value, range or bound."""
    if isinstance(claim.value, str):
        raise NotEvaluated("a number cannot decide a claim whose value is text")
    share = claim.tolerance
    if isinstance(claim.value, list):
        low, high = min(claim.value), max(claim.value)
        slack = share * max(abs(low), abs(high))
        holds = low - share * abs(low) <= measured <= high + share * abs(high)
        return holds, f"range {low:g} to {high:g}, within {slack:.3g}"
    expected = float(claim.value)
    if claim.bound == "upper":
        return measured <= expected, "upper bound"
    if claim.bound == "lower":
        return measured >= expected, "lower bound"
    if expected == 0:
        return abs(measured) <= share, f"zero, within {share:g} {claim.unit}"
    error = measured / expected - 1
    if abs(error) < 5e-4:
        return True, "equals the paper's value"
    side = "above" if error > 0 else "below"
    return abs(error) <= share, f"{abs(error):.1%} {side} the paper's value, {share:.0%} allowed"


def deciders(experiments: Iterable[str] | None = None) -> dict[str, Experiment]:
    """Return, for each claim id, the experiment that decides it.

    The result leaves out experiments whose file cannot be loaded; see `registry.broken`.
    """
    known = load()
    found: dict[str, Experiment] = {}
    names = experiments if experiments is not None else registry.ids()
    for name in names:
        if name in registry.broken():
            continue
        experiment = registry.load(name)
        for claim in experiment.decides:
            if claim not in known:
                why = f"{name} decides an unknown claim {claim!r}{nearest(claim, known)}"
                warnings.warn(why, WrongDecider, stacklevel=2)
            elif claim in found:
                why = f"{claim} is decided by {found[claim].id} and again by {name}"
                warnings.warn(why, WrongDecider, stacklevel=2)
            else:
                found[claim] = experiment
    return found


def papers() -> list[str]:
    """Return the keys of the papers, which are also the names of the systems."""
    return sorted({claim.paper for claim in load().values()})


@checked
def evaluate(
    out: FilePath = "results", system: str | None = None, fabric: FabricName = "sim"
) -> list[Verdict]:
    """Judge every claim (of one system) by the results under `out`; misses come first.

    A claim is judged by a whole sweep that today's code measured with the paper's settings. It is
    ``stale`` if other code measured the sweep.

    Raises
    ------
    InvalidArgument
        The system, the fabric or the folder does not exist.
    """
    if system is not None and system not in papers():
        raise InvalidArgument(
            f"unknown system {shown(system)}{nearest(system, papers())}; "
            f"give one of {', '.join(papers())}"
        )
    by_claim = deciders()
    by_folder = _Results(out, fabric)
    verdicts = [
        _evaluate(claim, by_claim.get(claim.id), by_folder)
        for claim in load().values()
        if system is None or claim.paper == system
    ]
    return sorted(verdicts, key=lambda v: VERDICTS.index(v.verdict))


@checked
def undecided(out: FilePath, system: str | None = None, fabric: FabricName = "sim") -> list[str]:
    """Return ids of experiments that decide claims (of a system) and lack a whole, fresh sweep."""
    by_folder = _Results(out, fabric)
    missing = []
    for claim, experiment in deciders().items():
        if system is not None and not claim.startswith(f"{system}/"):
            continue
        if isinstance(experiment.decides[claim], ProfileValue) or experiment.measure is None:
            continue
        if experiment.id in missing or fabric not in experiment.fabrics:
            continue
        try:
            by_folder.data(experiment)
        except NotEvaluated:
            missing.append(experiment.id)
    return missing


class _Results:
    """Results under one folder; each experiment's are read once."""

    def __init__(self, out: str | Path, fabric: str) -> None:
        check("fabric", fabric, FabricName)
        self._out = results.check_folder(out)
        self._fabric = fabric
        self._data: dict[str, Data | NotEvaluated] = {}

    def data(self, experiment: Experiment) -> Data:
        if experiment.id not in self._data:
            try:
                self._data[experiment.id] = self._read(experiment)
            except NotEvaluated as reason:
                self._data[experiment.id] = reason
        found = self._data[experiment.id]
        if isinstance(found, NotEvaluated):
            raise found
        return found

    def _read(self, experiment: Experiment) -> Data:
        stored = results.of(self._out, experiment, self._fabric)
        whole = results.whole_sweep(experiment, stored, self._fabric, self._out)
        return Data(results.table(whole))


def _evaluate(claim: Claim, experiment: Experiment | None, by_folder: _Results) -> Verdict:
    verdict, measured, reason = "not evaluated", None, ""
    try:
        if experiment is None:
            built = {i.split("/")[0] for i in registry.ids()}
            missing = f"{_NO_EXPERIMENT} decides this claim yet"
            if claim.experiment in registry.broken():
                missing = (
                    f"{claim.experiment} cannot be loaded: {registry.broken()[claim.experiment]}"
                )
                raise NotEvaluated(missing)
            if claim.experiment not in registry.ids() and claim.paper not in built:
                missing = f"{_NO_EXPERIMENT} of {claim.paper} exists yet"
            raise NotEvaluated(missing)
        verdict, measured, reason = judge(claim, _outcome(claim, experiment, by_folder))
        if experiment.id != claim.experiment:
            reason = f"{reason}; by {experiment.id}" if reason else f"by {experiment.id}"
    except Stale as why:
        verdict, reason = "stale", str(why)
    except NotEvaluated as why:
        reason = str(why)
    return Verdict(
        claim=claim.id,
        paper=claim.paper,
        experiment=claim.experiment,
        kind=claim.kind,
        role=claim.role,
        verdict=verdict,
        expected=claim.value,
        measured=measured,
        unit=claim.unit,
        reason=reason,
    )


def _outcome(claim: Claim, experiment: Experiment, by_folder: _Results) -> Decision | float | bool:
    decider = experiment.decides[claim.id]
    if isinstance(decider, ProfileValue):
        name = decider.name or experiment.profile
        return Decision(None, decider.read(experiment.profile, claim), f"profile {name}")
    data = by_folder.data(experiment)
    try:
        return decider(data, claim)
    except (NotEvaluated, KeyboardInterrupt):
        raise
    except Exception as error:
        raise NotEvaluated(f"{DECIDER_FAILED}: {type(error).__name__}: {error}") from error


@checked
def select(verdicts: Sequence[Verdict], verdict: str) -> list[Verdict]:
    """Return the verdicts of this kind."""
    return [v for v in verdicts if v.verdict == verdict]
