"""The results that claims are judged by."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import results
from .basis import Basis
from .data import Data, NotEvaluated
from .experiment import Experiment
from .places import Place
from .sensitivity import Sensitivity

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Evidence"]


class Evidence:
    """The results on one fabric under one folder; each experiment's are read once.

    Parameters
    ----------
    out
        The results folder.
    fabric
        The fabric, or FABRIC@TESTBED[/HOST]; see `Place`.
    basis
        The code and the profiles of current points; today's if None.

    Raises
    ------
    InvalidArgument
        The folder or the fabric does not exist.
    """

    def __init__(self, out: str | Path, fabric: str, basis: Basis | None = None) -> None:
        self._place = Place.of(fabric)
        self._out = results.check_folder(out)
        self._basis = basis
        self._data: dict[str, Data | NotEvaluated] = {}
        self._by_seed: dict[str, dict[int, pd.DataFrame]] = {}
        self._sensitivity: dict[str, Sensitivity] = {}

    def sensitivity(self, experiment: Experiment) -> Sensitivity:
        """Return the verdicts of an experiment's claims under changed estimates."""
        if self._place.fabric != "sim":
            return Sensitivity()  # other fabrics have no profile
        if experiment.id not in self._sensitivity:
            basis = self._basis.sensitivity.get(experiment.id) if self._basis else None
            found = Sensitivity.read(self._out, experiment, basis)
            self._sensitivity[experiment.id] = found
        return self._sensitivity[experiment.id]

    def data(self, experiment: Experiment) -> Data:
        """Return a whole sweep of current code; see `results.whole_sweep` for the errors."""
        if experiment.id not in self._data:
            try:
                self._data[experiment.id] = self._read(experiment)
            except NotEvaluated as reason:
                self._data[experiment.id] = reason
        found = self._data[experiment.id]
        if isinstance(found, NotEvaluated):
            raise found
        return found

    def by_seed(self, experiment: Experiment) -> dict[int, pd.DataFrame]:
        """Return the table of `data` of each seed; none if there is only one seed."""
        if experiment.id not in self._by_seed:
            parts = self.data(experiment).frame.groupby("seed")
            self._by_seed[experiment.id] = (
                {int(seed): part for seed, part in parts} if parts.ngroups > 1 else {}
            )
        return self._by_seed[experiment.id]

    def _read(self, experiment: Experiment) -> Data:
        place = self._place
        tables = results.tables(self._out, experiment.id, place.folder)
        if not place.host and len(tables) == 1:
            [place] = tables
        elsewhere = results.places(self._out, f"{experiment.id}/{place.fabric}@*")
        others = [str(p) for p in tables] or [folder.name for _, folder in elsewhere]
        if others and place not in tables:
            raise NotEvaluated(
                f"{place} has no table of its own; there are {', '.join(others)}, so for example "
                f"--fabric {others[0]}"
            )
        # The texts of an archive's verdicts must not name the folder in which it was made.
        named = self._out if self._basis is None else Path("results")
        whole = results.whole_sweep(experiment, tables.get(place, []), place, named, self._basis)
        return Data(results.table(whole))
