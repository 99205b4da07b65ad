"""Judge the papers' claims by the available results.

A claim is never edited to make it hold. `pyrdma.judging` judges numbers by one set of tolerances.
The code that the experiment declares judges ranks, trends and crossovers (`Experiment.decides`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import judging, registry
from .arguments import FilePath, checked, shown
from .data import Data, NotEvaluated
from .decide import ByConstruction, Conjunction, ProfileValue
from .errors import Error, InvalidArgument, nearest
from .evidence import Evidence
from .judging import TOLERANCES, decided, error_of, judge
from .places import Place
from .results import Stale
from .sensitivity import Sensitivity
from .units import base

if TYPE_CHECKING:
    from .experiment import Experiment

__all__ = ["TOLERANCES", "VERDICTS", "Claim", "Verdict", "evaluate", "judge", "load", "undecided"]

NOT_ROBUST = "held, not robust"
BY_CONSTRUCTION = "by construction"
VERDICTS = ("missed", NOT_ROBUST, "held", BY_CONSTRUCTION, "stale", "not evaluated")
"""Verdicts in the order of their display.

``held, not robust``: a validation claim is missed by one of the seeds alone, or when an estimate of
the profile is halved or doubled.
``by construction``: the claim holds, but it predicts nothing, because the model, the experiment or
a parameter of the profile was made to hold it.
"""

_NO_EXPERIMENT = "no experiment"


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
        is_number = not isinstance(self.value, str) and self.kind != "crossover"
        return judging.bound_in(self.note) if is_number else None

    @property
    def number(self) -> float | None:
        """The value if it is one number; the middle of a range; None for text."""
        if isinstance(self.value, list):
            return sum(self.value) / len(self.value)
        return None if isinstance(self.value, str) else float(self.value)


@dataclass(frozen=True)
class Verdict:
    """A claim's verdict, with the fields of ``pyrdma claims --json``.

    Attributes
    ----------
    error
        Distance of the measured number from the paper's, as a fraction, for a number that is
        neither a bound nor by construction.
    seeds
        Number of seeds whose data alone decide the claim; 0 if fewer than two do.
    seeds_apart
        Those seeds among them whose data alone give another verdict.
    same_as
        Claims of which this one has the data; it does not count beside them.
    robust
        Whether the verdict stays ``held`` with every estimate of the profile halved and doubled;
        None if ``pyrdma claims --sensitivity`` has not measured it.
    changed_by
        Changes of estimates that turn the verdict over, such as ``cpu.poll_ns halved``.
    miss_has_reason
        Whether the experiment states a reason for the miss (`Experiment.misses`).
    """

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
    error: float | None = None
    seeds: int = 0
    seeds_apart: tuple[int, ...] = ()
    same_as: str = ""
    robust: bool | None = None
    changed_by: tuple[str, ...] = ()
    miss_has_reason: bool = False

    @property
    def is_wrong_profile(self) -> bool:
        """Whether a calibration claim is missed, and its experiment gives no reason for that."""
        missed = self.role == "calibration" and self.verdict == "missed"
        return missed and not self.miss_has_reason

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


def deciders(experiments: Iterable[str] | None = None) -> dict[str, Experiment]:
    """Return, for each claim id, the experiment (of these ids or paths) that decides it.

    Of all experiments, those whose file cannot be loaded are left out; see `registry.broken`.
    """
    known = load()
    found: dict[str, Experiment] = {}
    if experiments is None:
        experiments = [name for name in registry.ids() if name not in registry.broken()]
    for name in experiments:
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


def check_system(system: str | None) -> None:
    """Raise unless the system exists; None stands for all of them."""
    if system is not None and system not in papers():
        raise InvalidArgument(
            f"unknown system {shown(system)}{nearest(system, papers())}; "
            f"give one of {', '.join(papers())}"
        )


def predictions(experiment: Experiment) -> list[Claim]:
    """Return the validation claims that an experiment decides, and not by construction."""
    return [
        load()[claim]
        for claim in deciders([experiment.id])
        if load()[claim].role == "validation" and not predicts_nothing(experiment, claim)
    ]


def predicting(system: str | None) -> list[Experiment]:
    """Return the experiments (of a system) that decide predictions in ``sim``."""
    found = {e.id: e for e in deciders().values() if e.measure is not None and "sim" in e.fabrics}
    return [
        e for e in found.values() if any(system in (None, claim.paper) for claim in predictions(e))
    ]


@checked
def evaluate(
    out: FilePath = "results", system: str | None = None, fabric: str = "sim"
) -> list[Verdict]:
    """Judge every claim (of one system) by the results under `out`; misses come first.

    A result of ``pyrdma claims --sensitivity`` under `out` tells which verdicts are robust.

    `fabric` may name a testbed, and one of its hosts where each measured alone: ``verbs@lab``,
    ``shm@lab/node-0``.

    A claim is judged by a whole sweep that today's code measured with the paper's settings. It is
    ``stale`` if other code measured the sweep.

    Raises
    ------
    InvalidArgument
        The system, the fabric or the folder does not exist.
    """
    return judged(Evidence(out, fabric), system)


def judged(
    evidence: Evidence, system: str | None = None, experiment: str | None = None
) -> list[Verdict]:
    """Judge every claim (of one system, or that one experiment decides); see `evaluate`."""
    check_system(system)
    by_claim = deciders(None if experiment is None else [experiment])
    found = [
        _evaluate(claim, by_claim.get(claim.id), evidence)
        for claim in load().values()
        if system is None or claim.paper == system
        if experiment is None or claim.id in by_claim
    ]
    found.sort(key=lambda pair: VERDICTS.index(pair[0].verdict))
    first: dict[_Datum, str] = {}
    verdicts = []
    for verdict, datum in found:
        earlier = first.setdefault(datum, verdict.claim) if datum else verdict.claim
        same = earlier if earlier != verdict.claim else verdict.same_as
        verdicts.append(replace(verdict, same_as=same))
    return verdicts


@checked
def undecided(out: FilePath, system: str | None = None, fabric: str = "sim") -> list[str]:
    """Return ids of experiments that decide claims (of a system) and lack a whole, fresh sweep."""
    evidence = Evidence(out, fabric)
    missing = []
    for claim, experiment in deciders().items():
        if system is not None and not claim.startswith(f"{system}/"):
            continue
        if isinstance(experiment.decides[claim], ProfileValue) or experiment.measure is None:
            continue
        if experiment.id in missing or Place.of(fabric).fabric not in experiment.fabrics:
            continue
        try:
            evidence.data(experiment)
        except NotEvaluated:
            missing.append(experiment.id)
    return missing


_Datum = tuple[Any, ...]
"""Key of what decided a claim: two claims with equal keys have one datum, and count once."""


def _evaluate(
    claim: Claim, experiment: Experiment | None, evidence: Evidence
) -> tuple[Verdict, _Datum | None]:
    empty = Verdict(
        claim=claim.id,
        paper=claim.paper,
        experiment=claim.experiment,
        kind=claim.kind,
        role=claim.role,
        verdict="not evaluated",
        expected=claim.value,
        measured=None,
        unit=claim.unit,
        reason="",
    )
    try:
        if experiment is None:
            raise NotEvaluated(_why_undecided(claim))
        data = None
        if not isinstance(experiment.decides[claim.id], ProfileValue):
            data = Data(evidence.data(experiment).frame)
        outcome = decided(claim, experiment, data)
        verdict, measured, reason = judge(claim, outcome)
    except Stale as why:
        return replace(empty, verdict="stale", reason=str(why)), None
    except NotEvaluated as why:
        return replace(empty, reason=str(why)), None
    decider = experiment.decides[claim.id]
    found = replace(empty, verdict=verdict, measured=measured)
    if isinstance(decider, Conjunction):
        found = replace(found, same_as=", ".join(decider.claims))
    if verdict == "held" and predicts_nothing(experiment, claim.id):
        found = replace(found, verdict=BY_CONSTRUCTION)
        reason = _joined(reason, getattr(decider, "reason", ""))
    else:
        found = replace(found, error=error_of(claim, measured))
    if verdict == "missed":
        stated = experiment.misses.get(claim.id, "")
        reason = _joined(reason, stated)
        found = replace(found, miss_has_reason=bool(stated))
    if experiment.id != claim.experiment:
        reason = _joined(reason, f"by {experiment.id}")
    found = replace(found, reason=reason)
    by_seed = {} if data is None else evidence.by_seed(experiment)
    found = _over_seeds(found, judging.by_seed(claim, experiment, by_seed), verdict)
    if claim.role == "validation" and found.verdict in ("held", "missed"):
        found = _with_sensitivity(found, evidence.sensitivity(experiment))
    if claim.role == "validation" and found.verdict == "held" and found.seeds_apart:
        found = replace(found, verdict=NOT_ROBUST, robust=False)
    return found, _datum(experiment, claim, data, measured)


def _joined(*texts: str) -> str:
    return "; ".join(text for text in texts if text)


def _why_undecided(claim: Claim) -> str:
    if claim.experiment in registry.broken():
        return f"{claim.experiment} cannot be loaded: {registry.broken()[claim.experiment]}"
    built = {i.split("/")[0] for i in registry.ids()}
    if claim.experiment not in registry.ids() and claim.paper not in built:
        return f"{_NO_EXPERIMENT} of {claim.paper} exists yet"
    return f"{_NO_EXPERIMENT} decides this claim yet"


def predicts_nothing(experiment: Experiment, claim: str) -> bool:
    """Return whether a claim that holds does so by construction."""
    return isinstance(experiment.decides[claim], (ProfileValue, ByConstruction))


def _datum(
    experiment: Experiment, claim: Claim, data: Data | None, measured: float | str | None
) -> _Datum | None:
    """Return the key of a claim's datum: the rows that its decider read, and what it made of them.

    None if the decider took the whole table.
    """
    decider = experiment.decides[claim.id]
    if isinstance(decider, ProfileValue):
        return claim.role, decider.name or experiment.profile, decider.key
    rows = data.rows_read() if data is not None else None
    if not rows:
        return None
    if isinstance(measured, (int, float)):
        return claim.role, experiment.id, rows, f"{base(float(measured), claim.unit):.9g}"
    return claim.role, experiment.id, rows, measured


def _over_seeds(found: Verdict, by_seed: Mapping[int, str], verdict: str) -> Verdict:
    """Say over how many seeds a verdict holds, if two or more decide the claim alone."""
    deciding = {seed: other for seed, other in by_seed.items() if other != judging.UNDECIDED}
    count = len(deciding)
    if count < 2:
        return found
    apart = tuple(seed for seed, other in deciding.items() if other != verdict)
    text = f"with each of {count} seeds"
    if apart:
        other = "missed" if verdict == "held" else "held"
        named = ", ".join(map(str, apart[:5])) + (", ..." if len(apart) > 5 else "")
        text = f"{other} with {len(apart)} of {count} seeds alone: {named}"
    if count < len(by_seed):
        text += f"; undecided by {len(by_seed) - count} of {len(by_seed)} seeds alone"
    reason = _joined(text, found.reason) if apart else _joined(found.reason, text)
    return replace(found, seeds=count, seeds_apart=apart, reason=reason)


def _with_sensitivity(verdict: Verdict, found: Sensitivity) -> Verdict:
    """Say which estimates turn a verdict over, and whether a held one is robust."""
    changes = found.changes_of(verdict.claim, verdict.verdict)
    if not changes:
        robust = verdict.verdict == "held" and found.is_robust(verdict.claim)
        return replace(verdict, robust=robust or None)
    other = "missed" if verdict.verdict == "held" else "held"
    more = f" and {len(changes) - 3} more changes of estimates" if len(changes) > 3 else ""
    text = f"{other} with {', '.join(changes[:3])}{more}"
    verdict = replace(verdict, reason=_joined(text, verdict.reason), changed_by=changes)
    if verdict.verdict == "held":
        verdict = replace(verdict, verdict=NOT_ROBUST, robust=False)
    return verdict


@checked
def select(verdicts: Sequence[Verdict], verdict: str) -> list[Verdict]:
    """Return the verdicts of this kind."""
    return [v for v in verdicts if v.verdict == verdict]


def counted(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts of different data: of two claims on one datum the worse verdict."""
    return [v for v in verdicts if not v.same_as]
