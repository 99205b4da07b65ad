"""Makes tables, figures and verdicts of an archive again, from its points, and compares them.

The installed experiments draw and judge; an archive's own code does not run, unless the caller has
made the archive's folder that of the experiments (`pyrdma.registry`). The digests inside an archive
show damage. They show no intent: who changes an archive can change them, too. Compare the SHA-256
of the file with the one that its author published.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyrdma import provenance, registry
from pyrdma.basis import Basis
from pyrdma.errors import Error
from pyrdma.files import DamagedFile
from pyrdma.scratch import scratch_folder

from . import archive as archives
from .crate import Archive

__all__ = ["Verification", "verify"]

_MOST_PIXELS = 50_000_000
_KINDS = {".jsonl": "points", ".parquet": "tables", ".png": "figures", ".pdf": "figures"}


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    Attributes
    ----------
    sha256
        Digest of the archive's file.
    equal
        Kind -> number of its things that are as the archive has them: files, points, tables,
        figures (as PNG and PDF), verdicts.
    differences
        A line for each thing that is not, or that could not be made again.
    notes
        Lines on what the archive was made with, where this installation differs.
    """

    sha256: str
    equal: Mapping[str, int]
    differences: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


def verify(archive: Archive, folder: Path) -> Verification:
    """Compare an archive, unpacked in `folder` (`crate.unpacked`), with what its points give.

    Costs the drawing of every figure, half a second for most.

    Raises
    ------
    Error
        The archive lacks its provenance or its verdicts, or has them in another form.
    """
    made = _provenance(archive, folder)
    stored = folder / "results"
    differences: list[str] = []
    equal = {"files": len(archive.files)}
    with scratch_folder() as again:
        with warnings.catch_warnings(record=True) as damaged:
            warnings.simplefilter("always", DamagedFile)
            archives.copy_points(stored, again)
        notes = [str(w.message).replace(f"{folder}/", "") for w in damaged]
        differences += archives.remake(again)
        judged = archives.verdicts(again, made["basis"])
        for kind, difference in (
            *_made(stored, again, made["by"]),
            *(("verdicts", text) for text in _verdicts(archive, folder, judged)),
        ):
            equal[kind] = equal.get(kind, 0) + (not difference)
            differences += [difference] if difference else []
    notes += _notes(folder, made)
    return Verification(archive.sha256, equal, tuple(differences), tuple(notes))


def _json(archive: Archive, folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_bytes())
    except FileNotFoundError:
        raise Error(f"the archive {archive.path} has no {name}; make it again") from None
    except (ValueError, RecursionError) as error:
        raise Error(f"the archive {archive.path}: {name} is no JSON: {error}") from None


def _provenance(archive: Archive, folder: Path) -> dict[str, Any]:
    document = _json(archive, folder, archives.PROVENANCE)
    try:
        by = document["by"]
        versions = {n: str(by["packages"].get(n)) for n in ("matplotlib", "numpy")}
        return {
            "by": {"pyrdma": str(by["pyrdma"]), "git": (by["git"] or {}).get("commit"), **versions},
            "basis": Basis.of(document["basis"]),
        }
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise Error(
            f"the archive {archive.path}: {archives.PROVENANCE} has another form than that of "
            f"'pyrdma archive': {error}"
        ) from None


def _made(stored: Path, again: Path, by: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield, for each file of results, its kind and how it differs; empty if it does not."""
    old, new = (
        {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
        for root in (stored, again)
    )
    for name in sorted(old | new):
        kind = _KINDS.get(Path(name).suffix, "notes of runs")
        if name not in new:
            yield kind, f"{name}: the points do not give it again, or it is no whole point"
        elif name not in old:
            yield kind, f"{name}: the archive lacks it"
        elif (stored / name).read_bytes() == (again / name).read_bytes():
            yield kind, ""
        elif name.endswith(".parquet"):
            yield kind, _table_difference(stored / name, again / name, name)
        else:
            yield kind, _figure_difference(stored / name, again / name, name, by)


def _table_difference(stored: Path, again: Path, place: str) -> str:
    """Return how two tables differ whose bytes do, by another version of pyarrow perhaps."""
    import pyarrow.parquet
    from pyarrow.lib import ArrowException

    try:
        old = pyarrow.parquet.read_table(stored)
    except (ArrowException, OSError, ValueError, MemoryError) as error:
        return f"{place}: the archive's table cannot be read: {error}"
    new = pyarrow.parquet.read_table(again)
    if old.equals(new):
        return ""
    if old.schema != new.schema or len(old) != len(new):
        return f"{place}: {len(old)} rows in the archive, {len(new)} again, or other columns"
    columns = [n for n in old.column_names if not old[n].equals(new[n])]
    return f"{place}: other values in {', '.join(columns)}"


def _figure_difference(stored: Path, again: Path, name: str, by: Mapping[str, str]) -> str:
    how = "it differs"
    if stored.suffix == ".png":
        share = _other_pixels(stored.read_bytes(), again.read_bytes())
        if share == 0:
            return ""
        how += f" in {share:.2%} of its pixels" if share else " in its size, or is no picture"
    here = provenance.collect()["packages"]
    others = [f"{n} {by[n]} drew it, and this is {v}" for n, v in here.items() if by.get(n, v) != v]
    return "; ".join([f"{name}: {how}", *others])


def _other_pixels(old: bytes, new: bytes) -> float | None:
    """Return the share of pixels that differ; None for pictures of other sizes, or for none."""
    import numpy as np
    from PIL import Image

    pictures = []
    for content in (old, new):
        try:
            with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
                if picture.width * picture.height > _MOST_PIXELS:
                    return None
                pictures.append(np.asarray(picture.convert("RGBA")))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
    if pictures[0].shape != pictures[1].shape:
        return None
    return float((pictures[0] != pictures[1]).any(axis=2).mean())


def _verdicts(
    archive: Archive, folder: Path, again: Mapping[str, list[dict[str, Any]]]
) -> Iterator[str]:
    """Yield, for each claim, how its verdict differs; an empty text if it does not."""
    stored = folder / "verdicts"
    there = {p.relative_to(stored).as_posix()[: -len(".json")] for p in stored.rglob("*.json")}
    yield from (
        f"verdicts/{name}.json: nothing gives it again" for name in sorted(there - again.keys())
    )
    for place in sorted(again):
        document = _json(archive, folder, f"verdicts/{place}.json")
        try:
            old = {entry["claim"]: entry for entry in document["verdicts"]}
        except (LookupError, TypeError) as error:
            raise Error(f"the archive {archive.path}: verdicts/{place}.json: {error}") from None
        new = {entry["claim"]: entry for entry in again[place]}
        for claim in sorted(old.keys() | new.keys()):
            if claim not in old or claim not in new:
                where = "this installation" if claim in old else "the archive"
                yield f"{claim} on {place}: {where} has no such claim"
                continue
            fields = [n for n in new[claim] if old[claim].get(n) != new[claim][n]]
            changes = [
                f"{n} {old[claim].get(n)!r} in the archive, {new[claim][n]!r}" for n in fields
            ]
            yield f"{claim} on {place}: {'; '.join(changes)}" if changes else ""


def _notes(folder: Path, made: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the archive was made with, where this installation differs."""
    here = provenance.collect()
    commit = (here["git"] or {}).get("commit")
    if (made["by"]["pyrdma"], made["by"]["git"]) != (here["pyrdma"], commit):
        yield (
            f"pyrdma {made['by']['pyrdma']} (commit {made['by']['git']}) made the archive; this is "
            f"{here['pyrdma']} (commit {commit})"
        )
    installed = archives.sources()
    inside = {
        path.relative_to(folder).as_posix(): path
        for name in ("experiments", "profiles")
        for path in (folder / name).rglob("*")
        if path.is_file()
    }
    differ = sorted(
        name
        for name in inside.keys() | installed.keys()
        if name not in inside
        or name not in installed
        or inside[name].read_bytes() != installed[name].read_bytes()
    )
    if differ:
        more = f" and {len(differ) - 8} more" if len(differ) > 8 else ""
        yield (
            f"the archive's sources differ from those in {registry.root()} and the package: "
            f"{', '.join(differ[:8])}{more}; --run-archived runs the archive's experiments"
        )
