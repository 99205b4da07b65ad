"""The code and the profiles by which stored points count as current.

Verdicts need points of today's code. The verdicts of an archive need points of the code that was
current when the archive was made; the archive keeps that basis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import _shapes, reach
from .experiment import Experiment
from .profiles import Profile
from .sensitivity import basis_of
from .store import Task

__all__ = ["Basis"]

_digests = _shapes.mapping_of(_shapes.text(100), 4096)
_FIELDS: Mapping[str, _shapes.Shape] = dict.fromkeys(("code", "profiles", "sensitivity"), _digests)


@dataclass(frozen=True)
class Basis:
    """Digests of the code of experiments, of profiles, and of all that sensitivity depends on.

    Attributes
    ----------
    code, sensitivity
        Id of an experiment -> digest.
    profiles
        Name of a profile -> digest.
    """

    code: Mapping[str, str]
    profiles: Mapping[str, str]
    sensitivity: Mapping[str, str]

    @classmethod
    def today(cls, experiments: Iterable[Experiment]) -> Basis:
        """Return the basis that these experiments have now."""
        measured = [e for e in experiments if e.measure is not None]
        simulated = [e for e in measured if "sim" in e.fabrics]
        profiles = {
            p.profile for e in simulated for quick in (True, False) for p in e.points(quick=quick)
        }
        return cls(
            code={e.id: reach.digest(e.measure) for e in measured},
            profiles={name: Profile.load(name).digest() for name in sorted(profiles)},
            sensitivity={e.id: basis_of(e) for e in simulated},
        )

    @classmethod
    def of(cls, document: object) -> Basis:
        """Return the basis of a document from outside.

        Raises
        ------
        ValueError
            It is none.
        """
        if not _shapes.has(document, _FIELDS):
            raise ValueError("it has no digests of code, profiles and sensitivity")
        assert isinstance(document, dict)
        return cls(**document)

    def as_dict(self) -> dict[str, Any]:
        """Return the digests as JSON has them."""
        return asdict(self)

    def current(self, task: Task) -> Task:
        """Return a task of today as this basis has it; one of unknown code stays as it is."""
        point = task.point
        code = self.code.get(point.experiment, task.code)
        digest = self.profiles.get(point.profile, "") if task.profile_digest else ""
        return replace(task, code=code, profile_digest=digest or task.profile_digest)
