"""What a run is asked to measure: its options, and the points that they mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import timeline as timelines
from .arguments import check, shown
from .errors import InvalidArgument, Unavailable
from .experiment import Experiment, Point
from .fabrics import FabricName, fabric_problem
from .hosts.fleet import Fleet
from .profiles import parse_overrides
from .result import Value

__all__ = ["FULL_SEEDS", "QUICK_SEEDS", "Options", "points_of"]

QUICK_SEEDS, FULL_SEEDS = 3, 6
"""Seeds of each point on ``sim`` where none are given. Six give an interval of 95 % of a median."""


@dataclass(frozen=True)
class Options:
    """The options of a run, as the command line has them.

    Parameters
    ----------
    fabric
        The fabric to run on; the experiment's first if None.
    profile
        Name or path; the experiment's profile if None.
    seeds
        Seeds with which each point is measured. None: on ``sim`` 1 to `QUICK_SEEDS`, or to
        `FULL_SEEDS` if not `quick`; elsewhere 1, since repetitions differ there.
    repetitions
        How often each point is measured on a real-time fabric; as the experiment declares if None.
    settings
        Axes set to a value or to several, and profile parameters (``table.key``) set to one value.
    jobs
        Number of worker processes of a simulated sweep; one per core if None.
    fresh
        Measure points again that are already measured.
    fleet
        The hosts that hold the nodes; None: nodes are on this machine.
    timeline
        Measure the first point alone, and record the timeline of its clusters.
    """

    out: Path = Path("results")
    fabric: str | None = None
    profile: str | None = None
    quick: bool = True
    seeds: Sequence[int] | None = None
    repetitions: int | None = None
    settings: Mapping[str, Value | Sequence[Value]] = field(default_factory=dict)
    jobs: int | None = None
    fresh: bool = False
    fleet: Fleet | None = None
    timeline: timelines.Options | None = None

    def seeds_on(self, fabric: str) -> Sequence[int]:
        """Return the seeds with which each point on a fabric is measured."""
        if self.seeds is not None:
            return self.seeds
        many = QUICK_SEEDS if self.quick else FULL_SEEDS
        return range(1, many + 1) if fabric == "sim" and self.timeline is None else (1,)


class ComparesProfiles(InvalidArgument):
    """An experiment compares profiles, and the fabric has none."""


def points_of(experiment: Experiment, options: Options) -> list[Point]:
    """Return the points that a run with these options measures.

    Raises
    ------
    Unavailable
        The fabric is missing; the message says what to install.
    InvalidArgument
        An option is wrong, the experiment cannot run so, or a point would be measured twice.
    """
    fabric = options.fabric or experiment.fabrics[0]
    check_fabric(experiment, fabric, options.fleet)
    overrides = parse_overrides(options.settings)
    if overrides and fabric != "sim":
        raise InvalidArgument(
            f"{', '.join(overrides)}: profile parameters need fabric 'sim', not {fabric!r}"
        )
    if options.profile is not None and fabric != "sim":
        raise InvalidArgument(
            f"profile {shown(options.profile)} needs fabric 'sim'; {fabric!r} runs at the "
            "machine's own speed"
        )
    if options.repetitions is not None and fabric == "sim":
        raise InvalidArgument(
            f"{options.repetitions} repetitions on fabric 'sim': equal seeds give equal numbers "
            f"there, so give other seeds, --seeds 1-{options.repetitions}, or a real-time fabric"
        )
    if experiment.measure is None:
        raise InvalidArgument(
            f"{experiment.id} has nothing to measure; `pyrdma claims` reads its profile"
        )
    seeds = options.seeds_on(fabric)
    twice = next((seed for seed, n in Counter(seeds).items() if n > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"seed {twice} is given twice, so its points would be measured twice; give each seed "
            "once, and repetitions on a real-time fabric"
        )
    points = [
        point
        for seed in seeds
        for point in experiment.points(
            quick=options.quick,
            fabric=fabric,
            profile=options.profile,
            overrides=overrides,
            seed=seed,
            settings={k: v for k, v in options.settings.items() if "." not in k},
        )
    ]
    _check_profiles(experiment, points, options.profile)
    if not points:
        raise InvalidArgument(f"{experiment.id}: these settings and seeds leave no points")
    return points


def _check_profiles(experiment: Experiment, points: Sequence[Point], profile: str | None) -> None:
    """Raise if an axis of profiles would measure the same several times under other names."""
    named = list(dict.fromkeys(str(p.params["profile"]) for p in points if "profile" in p.params))
    if len(named) < 2:
        return
    if points[0].fabric != "sim":
        raise ComparesProfiles(
            f"{experiment.id} has an axis of {len(named)} profiles, and {points[0].fabric} runs at "
            "the machine's own speed: each of them would measure this machine again; give the "
            f"profile of this machine's testbed, as --set profile={named[0]}, or --fabric sim"
        )
    if profile is not None:
        raise InvalidArgument(
            f"{experiment.id} has an axis of {len(named)} profiles, and with profile "
            f"{shown(profile)} each of them would measure that one again; give --set "
            f"profile={profile}"
        )


def check_fabric(experiment: Experiment, fabric: str, fleet: Fleet | None = None) -> None:
    """Raise unless the experiment can run on this fabric, here or on the hosts of a fleet."""
    check("fabric", fabric, FabricName)
    if fabric not in experiment.fabrics:
        reason = experiment.why_not.get(fabric)
        why = f": {reason}" if reason else f"; it runs on {', '.join(experiment.fabrics)}"
        raise InvalidArgument(f"{experiment.id} cannot run on {fabric}{why}")
    if fleet is not None:
        if fabric == "sim":
            raise InvalidArgument(
                f"fabric 'sim' needs no hosts, and there is the inventory {fleet.inventory.path}; "
                "give --fabric verbs or shm, or leave the inventory out"
            )
        fleet.require_fabric(fabric)
        return
    problem = fabric_problem(fabric)
    if problem:
        raise Unavailable(f"fabric {fabric}: {problem}")
