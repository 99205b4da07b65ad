"""A report of a results folder: one HTML file without scripts, for reading offline and printing."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrdma import claims, provenance, registry, results
from pyrdma._version import __version__
from pyrdma.claims import Verdict
from pyrdma.errors import Error, InvalidArgument
from pyrdma.files import read_regular, write_atomically
from pyrdma.predictions import COLUMNS, by_kind, median_error
from pyrdma.store import Measurement, read_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write"]

_MOST_PICTURE = 64 << 20
_COLOURS = 96
"""Colours of an embedded figure: lines and their soft edges need few, and the file is a third."""


def write(out: Path, target: Path, fabric: str = "sim") -> int:
    """Write the report of a results folder; return the number of its figures.

    Results of `fabric` decide the claims. The figures are those of ``pyrdma run`` and ``draw``, of
    every fabric.

    Raises
    ------
    InvalidArgument
        The folder or the fabric does not exist, or the folder holds no points.
    Error
        The report cannot be written.
    """
    from jinja2 import Environment, StrictUndefined

    results.check_folder(out, "RESULTS")
    stored = {place: read_folder(place / "points") for _, place in results.places(out)}
    if not any(stored.values()):
        raise InvalidArgument(
            f"RESULTS {str(out)!r} has no points below PAPER/FIGURE/FABRIC; give the whole results "
            "folder, in which 'pyrdma run ID' measures"
        )
    verdicts = claims.evaluate(out, fabric=fabric)
    figures = _figures(out, stored)
    made_by = _made_by([m for found in stored.values() for m in found])
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    )
    text = page.render(
        title=f"Results of pyrdma: {out.resolve().name}",
        made=provenance.now()[:16].replace("T", " ") + " UTC",
        version=__version__,
        fabric=fabric,
        columns=COLUMNS,
        predictions=by_kind(verdicts),
        median_error=median_error(verdicts),
        misses=_misses(verdicts),
        papers={paper: _paper(verdicts, paper) for paper in claims.papers()},
        figures=figures,
        made_by=made_by,
        provenance=_rows(made_by),
        hosts=list(_hosts(out)),
    )
    write_atomically(target, text.encode())
    return sum(len(found) for found in figures.values())


def _misses(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """Return the missed claims by role, predictions first."""
    missed = claims.select(list(verdicts), "missed")
    by_role = {
        role: [v for v in missed if v.role == role] for role in ("validation", "calibration")
    }
    return {role: found for role, found in by_role.items() if found}


def _paper(verdicts: Iterable[Verdict], paper: str) -> dict[str, Any]:
    of_paper = [v for v in verdicts if v.paper == paper]
    rows = [v for v in of_paper if v.decidable]
    counts = {name: len(claims.select(rows, name)) for name in claims.VERDICTS}
    others = [v for v in rows if v.verdict != "missed"]
    return {"others": others, "counts": counts, "waiting": len(of_paper) - len(rows)}


def _figures(
    out: Path, stored: Mapping[Path, Sequence[Measurement]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the figures by paper: name, fabric, title, picture, and a note on other code."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, place in results.places(out):
        pictures = sorted(place.glob("*.png"))
        if not pictures:
            continue
        title, note = "", ""
        if name in registry.ids() and name not in registry.broken():
            experiment = registry.load(name)
            points = [m for m in results.newest(stored[place]) if m.identity["experiment"] == name]
            title, note = experiment.title, results.stale_note(experiment, points)
        for picture in pictures:
            figure: dict[str, Any] = {
                "name": f"{name.split('/')[0]}/{picture.stem}",
                "place": place.name,
            }
            figure |= {"title": title, "note": note, **_embedded(picture)}
            found.setdefault(name.split("/")[0], []).append(figure)
    return found


def _embedded(path: Path) -> dict[str, Any]:
    """Return a picture with few colours as base64, and whether it needs the page's width."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(read_regular(path, _MOST_PICTURE)), formats=["PNG"]) as picture:
            small = picture.convert("RGB").quantize(_COLOURS)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Error(f"{path} is no picture: {error}; remove it and run 'pyrdma draw'") from None
    stream = io.BytesIO()
    small.save(stream, "PNG", optimize=True)
    png = base64.b64encode(stream.getvalue()).decode()
    return {"png": png, "wide": small.width > 1.8 * small.height}


def _made_by(measurements: Iterable[Measurement]) -> list[dict[str, str]]:
    """Return a column for each provenance: machine, versions, times, number of points."""
    found: dict[str, dict[str, Any]] = {}
    for m in measurements:
        about = {**_flat(m.provenance), "measured on": m.machine}
        entry = found.setdefault(str(sorted(about.items())), {"about": about, "points": []})
        entry["points"].append((m.stopped, m.identity["fabric"], m.identity["experiment"]))
    columns = []
    for entry in found.values():
        stopped, fabrics, experiments = zip(*sorted(entry["points"]), strict=True)
        counts = {"points": len(stopped), "experiments": len(set(experiments))}
        times = {"first point": stopped[0][:16], "last point": stopped[-1][:16]}
        rows = {**counts, "fabrics": ", ".join(sorted(set(fabrics))), **times, **entry["about"]}
        columns.append({name: str(value) for name, value in rows.items()})
    return columns


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested tables as one, with names such as ``cpu model``."""
    found: dict[str, str] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            found |= _flat(inner, f"{prefix}{name} ")
        else:
            found[f"{prefix}{name}"] = "none" if inner in (None, []) else str(inner)
    return found


def _rows(columns: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the rows of a table of `columns`, those that differ first."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [{"name": name, "values": [c.get(name, "-") for c in columns]} for name in names]
    found = [{**row, "differs": len(set(row["values"])) > 1} for row in rows]
    return sorted(found, key=lambda row: not row["differs"])


def _hosts(out: Path) -> Iterator[dict[str, Any]]:
    """Yield a table for each different ``hosts.parquet``, with the experiments that have it."""
    import pandas as pd

    tables: dict[tuple[str, str], tuple[pd.DataFrame, list[str]]] = {}
    for name, place in results.places(out):
        path = place / "hosts.parquet"
        if not path.is_file():
            continue
        try:
            frame = pd.read_parquet(io.BytesIO(read_regular(path, _MOST_PICTURE))).astype(str)
        except (OSError, ValueError) as error:
            raise Error(f"{path} cannot be read: {error}; remove it, or run again") from None
        key = place.name, frame.to_json()
        tables.setdefault(key, (frame, []))[1].append(name)
    for (place_name, _), (frame, names) in tables.items():
        label = next((c for c in ("host", "name") if c in frame), None)
        hosts = list(frame[label]) if label else [str(n) for n in range(1, len(frame) + 1)]
        rows = _rows(frame.drop(columns=[label] if label else []).to_dict("records"))
        yield {"title": place_name, "names": hosts, "rows": rows, "experiments": names}
