"""The stored verdicts of an experiment's claims with every estimate halved and doubled.

`pyrdma.estimates` measures them, on demand. A record is used as long as the code, the deciders and
the profiles are those of its measurements.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from . import _shapes, reach, registry
from .experiment import Experiment
from .files import DamagedFile, read_regular, write_json
from .profiles import Profile

__all__ = ["FOLDER", "Sensitivity", "path_of"]

FOLDER = "sensitivity"
"""Folder below a results folder that holds the record and its measurements, by experiment."""

_MOST_BYTES = 16 << 20
_JUDGES = ("claims", "data", "decide", "judging", "sensitivity")

_verdicts = _shapes.mapping_of(_shapes.text(100), 100_000)
_FIELDS: Mapping[str, _shapes.Shape] = {
    "basis": _shapes.text(100),
    "usual": _verdicts,
    "changed": _shapes.mapping_of(_verdicts, 4096),
    "whole": lambda v: isinstance(v, bool),
}


@dataclass(frozen=True)
class Sensitivity:
    """The verdicts of an experiment's claims under changes of estimates.

    Attributes
    ----------
    basis
        Digest of all that the verdicts depend on.
    usual
        Claim -> verdict of the quick sweep with the profile as it is.
    changed
        Change, such as ``cpu.poll_ns halved`` -> claim -> verdict. A change that does not matter is
        not there.
    whole
        Whether every estimate has been tried.
    """

    basis: str = ""
    usual: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    whole: bool = False

    @classmethod
    def read(cls, out: Path, experiment: Experiment, basis: str | None = None) -> Sensitivity:
        """Return the record under `out`; an empty one if there is none of `basis`.

        `basis` is that of today's code if None.
        """
        path = path_of(out, experiment)
        try:
            document = json.loads(read_regular(path, _MOST_BYTES))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            warnings.warn(f"{path} cannot be read: {error}; left out", DamagedFile, stacklevel=2)
            return cls()
        if not _shapes.has(document, _FIELDS):
            warnings.warn(f"{path} is no record of verdicts; left out", DamagedFile, stacklevel=2)
            return cls()
        found = cls(**document)
        return found if found.basis == (basis or basis_of(experiment)) else cls()

    def write(self, out: Path, experiment: Experiment) -> None:
        """Store the record under `out`."""
        write_json(path_of(out, experiment), asdict(self))

    def changes_of(self, claim: str, verdict: str) -> tuple[str, ...]:
        """Return the changes that turn a claim's `verdict` over, ``held`` or ``missed``."""
        if self.usual.get(claim) != verdict:
            return ()
        other = "missed" if verdict == "held" else "held"
        return tuple(name for name, found in self.changed.items() if found.get(claim) == other)

    def is_robust(self, claim: str) -> bool:
        """Return whether a claim holds under every change, of which at least one matters."""
        found = [self.usual.get(claim), *(each.get(claim) for each in self.changed.values())]
        return self.whole and bool(self.changed) and set(found) == {"held"}


def path_of(out: Path, experiment: Experiment) -> Path:
    """Return the file of an experiment's record."""
    return out / FOLDER / experiment.id / "sim" / "verdicts.json"


def basis_of(experiment: Experiment) -> str:
    """Return a digest of code, deciders and profiles."""
    profiles = {point.profile for point in experiment.points(quick=True, fabric="sim")}
    return _hash(
        reach.digest(experiment.measure),
        _judges(),
        _hash(*(p.read_text(encoding="utf-8") for p in _files(experiment))),
        *(f"{name} {_profile(name)}" for name in sorted(profiles)),
    )


def _profile(name: str) -> str:
    """Return a digest of a profile's values, and of which of them are estimates."""
    parameters = Profile.load(name).parameters
    return _hash(*(f"{k} {p.value!r} {p.is_estimate}" for k, p in parameters.items()))


def _files(experiment: Experiment) -> list[Path]:
    """Return the experiment's file and the helpers beside it, which hold its deciders."""
    own = registry.source(experiment.id)
    return sorted({own, *own.parent.glob("_*.py")} & set(own.parent.glob("*.py")))


@cache
def _judges() -> str:
    folder = Path(__file__).parent
    return _hash(*((folder / f"{name}.py").read_text(encoding="utf-8") for name in _JUDGES))


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
