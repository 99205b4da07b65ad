"""Measure validation verdicts again with every estimate of their profiles halved and doubled.

An estimate is a parameter of a profile whose source says that it is assumed. Some points of the
quick sweep first tell whether it matters: the simulator is deterministic, so equal numbers mean
that nothing read the parameter. They have each value of each axis at least once. The points lie
under ``sensitivity`` in the results folder, and an interrupted search resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from . import claims, judging, results
from .arguments import FilePath, Jobs, checked
from .data import Data, NotEvaluated
from .experiment import Experiment, Point
from .profiles import Profile, parameters
from .sensitivity import FOLDER, Sensitivity, basis_of
from .store import Measurement, read_point
from .sweep import Sweep
from .workers import Workers

__all__ = ["FACTORS", "measure"]

FACTORS = {"halved": 0.5, "doubled": 2.0}

Say = Callable[..., object]

_NOT_SCALED = ("bool",)
_WHOLE = ("B", "count")


@dataclass(frozen=True)
class _Point:
    """A point of the usual sweep, and the same one with changed estimates."""

    usual: Point
    changed: Point

    @property
    def differs(self) -> bool:
        return self.usual != self.changed


@checked
def measure(
    out: FilePath = "results",
    system: str | None = None,
    jobs: Jobs | None = None,
    say: Say = print,
) -> None:
    """Measure the validation verdicts (of one system) under changes of estimates, in ``sim``.

    `claims.evaluate` reads the outcome afterwards. `say` gets a line per experiment and change.

    Raises
    ------
    InvalidArgument
        The system does not exist.
    Error
        The folder cannot be written; points already measured stay.
    """
    claims.check_system(system)
    with Workers(jobs) as workers:
        for experiment in claims.predicting(system):
            _Study(experiment, Path(out), workers, say).run()


class _Study:
    """The search of one experiment."""

    def __init__(self, experiment: Experiment, out: Path, workers: Workers, say: Say) -> None:
        self._experiment = experiment
        self._out = out
        self._workers = workers
        self._say = say
        self._points = list(experiment.points(quick=True, fabric="sim"))
        self._profiles = {p.profile: Profile.load(p.profile) for p in self._points}
        self._failed = False

    def run(self) -> None:
        """Measure what is missing, and store the record after each change."""
        name = self._experiment.id
        record = Sensitivity.read(self._out, self._experiment)
        if record.whole:
            self._say(f"{name}: every estimate has been tried")
            return
        usual = self._judge(self._measure(self._points, self._out))
        if not {"held", "missed"} & set(usual.values()):
            self._say(f"{name}: no verdict to test")
            return
        self._say(f"{name}: trying {len(self._estimates())} estimates")
        record = replace(record, basis=basis_of(self._experiment), usual=usual)
        for key in self._that_matter():
            for change, factor in FACTORS.items():
                pairs = self._changed({key: factor})
                label = f"{key} {change}"
                if label in record.changed or not any(pair.differs for pair in pairs):
                    continue
                measured = self._measured(pairs, self._folder([key]))
                if len(measured) < len(pairs):
                    continue
                verdicts = self._judge(measured)
                record = replace(record, changed={**record.changed, label: verdicts})
                record.write(self._out, self._experiment)
                turned = [c for c, v in verdicts.items() if v != usual[c]]
                self._say(f"{name}: {label}: {', '.join(turned) or 'no verdict changes'}")
        replace(record, whole=not self._failed).write(self._out, self._experiment)

    def _estimates(self) -> list[str]:
        """Return the estimates that can be changed, in any profile of the sweep."""
        return [
            key
            for key in parameters()
            if any(
                _scaled(profile, key, factor) is not None
                for profile in self._profiles.values()
                for factor in FACTORS.values()
            )
        ]

    def _that_matter(self) -> Iterator[str]:
        """Yield the estimates that change a number of the probes; first whole tables are tried."""
        tables: dict[str, list[str]] = {}
        for key in self._estimates():
            tables.setdefault(key.partition(".")[0], []).append(key)
        for keys in tables.values():
            if len(keys) > 1 and not self._matter(keys):
                continue
            yield from (key for key in keys if self._matter([key]))

    def _matter(self, keys: Sequence[str]) -> bool:
        """Return whether a probe's numbers differ when all these estimates change at once."""
        for factor in FACTORS.values():
            every = self._changed(dict.fromkeys(keys, factor), self._probes())
            pairs = [pair for pair in every if pair.differs]
            if not pairs:
                continue
            usual = self._measure([pair.usual for pair in pairs], self._out)
            changed = self._measure([pair.changed for pair in pairs], self._folder(keys))
            if len(usual) != len(changed):
                return True
            return any(
                a.rows != b.rows or a.samples != b.samples or a.histograms != b.histograms
                for a, b in zip(usual, changed, strict=True)
            )
        return False

    def _probes(self) -> list[Point]:
        """Return points that have each value of each axis at least once."""
        seen: set[tuple[str, object]] = set()
        probes = []
        for point in self._points:
            values = set(point.params.items())
            if not values or values - seen:
                probes.append(point)
                seen |= values
        return probes

    def _changed(
        self, factors: Mapping[str, float], points: Iterable[Point] | None = None
    ) -> list[_Point]:
        """Return points with these estimates of their own profile changed."""
        pairs = []
        for point in self._points if points is None else points:
            profile = self._profiles[point.profile]
            values = {key: _scaled(profile, key, factor) for key, factor in factors.items()}
            overrides = {key: value for key, value in values.items() if value is not None}
            pairs.append(_Point(point, replace(point, overrides=overrides)))
        return pairs

    def _folder(self, keys: Sequence[str]) -> Path:
        """Return the results folder of a changed estimate, or of a whole table of them.

        A run reads all points of its folder, so one folder for all would be slow.
        """
        return self._out / FOLDER / (keys[0] if len(keys) == 1 else keys[0].partition(".")[0])

    def _measured(self, pairs: Sequence[_Point], out: Path) -> list[Measurement]:
        changed = [pair.changed for pair in pairs if pair.differs]
        same = [pair.usual for pair in pairs if not pair.differs]
        return self._measure(changed, out) + self._measure(same, self._out)

    def _measure(self, points: list[Point], out: Path) -> list[Measurement]:
        """Measure points that are not stored yet; return all, without those that failed."""
        if not points:
            return []
        sweep = Sweep(self._experiment.id, self._experiment, points, out)
        outcome = sweep.run(executor=self._workers)
        for reason in sorted(set(outcome.failed.values()))[:3]:
            self._failed = True
            self._say(f"{self._experiment.id}: {reason}")
        folder = out / self._experiment.id / "sim" / "points"
        done = [task for task in outcome.tasks if task.key not in outcome.failed]
        return [read_point(folder / f"{task.key}.jsonl") for task in done]

    def _judge(self, measured: Sequence[Measurement]) -> dict[str, str]:
        """Return the verdicts of the claims that predict something."""
        if not measured:
            return {}
        table = results.table(measured)
        found = {}
        for claim in claims.predictions(self._experiment):
            try:
                outcome = judging.decided(claim, self._experiment, Data(table))
                found[claim.id] = claims.judge(claim, outcome)[0]
            except NotEvaluated:
                found[claim.id] = "not evaluated"
        return found


def _scaled(profile: Profile, key: str, factor: float) -> float | None:
    """Return an estimate times `factor` within its bounds; None if it cannot change."""
    parameter = profile.parameters[key]
    unit, low, high = parameters()[key]
    if not parameter.is_estimate or unit in _NOT_SCALED:
        return None
    value = min(max(parameter.value * factor, low), high)
    if unit in _WHOLE:
        value = float(round(value))
    return None if value == parameter.value else value
