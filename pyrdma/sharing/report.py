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
from pyrdma.comparison import compare
from pyrdma.errors import Error, InvalidArgument
from pyrdma.experiment import Experiment
from pyrdma.files import check_output, read_regular, write_atomically
from pyrdma.predictions import COLUMNS, by_kind, median_error
from pyrdma.store import Measurement, read_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write"]

_MOST_PICTURE = 64 << 20
_MOST_ROWS = 200
"""Rows of a table of numbers; the report says how many more there are."""
_COLOURS = 96
"""Colours of an embedded figure: lines and their soft edges need few, and the file is a third."""


def write(out: Path, target: Path, fabric: str = "sim", other: Path | None = None) -> int:
    """Write the report of a results folder; return the number of its figures.

    Results of `fabric` decide the claims. The figures are those of ``pyrdma run`` and ``draw``, of
    every fabric. With `other`, the report also compares that folder with this one.

    Raises
    ------
    InvalidArgument
        A folder or the fabric does not exist, or a folder holds no points, or the two have no point
        in common.
    Error
        The report cannot be written.
    """
    from jinja2 import Environment, StrictUndefined

    if target.is_dir():
        raise InvalidArgument(
            f"--out {target} is a folder; give the file to write, as --out report.html; the folder "
            f"of the results is the argument: pyrdma report {target}"
        )
    check_output(target, "--out")
    stored = _stored(out, "RESULTS")
    verdicts = claims.evaluate(out, fabric=fabric)
    figures = _figures(out, stored)
    points = [m for found in stored.values() for m in found]
    made_by = _made_by(points)
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
        overview=_overview(points),
        measured=list(_measured(points)),
        comparison=None if other is None else _comparison(out, other, made_by),
        made_by=made_by,
        provenance=_rows(made_by),
        hosts=list(_hosts(out)),
    )
    write_atomically(target, text.encode())
    return sum(len(found) for found in figures.values())


def _stored(out: Path, name: str) -> dict[Path, list[Measurement]]:
    results.check_folder(out, name)
    stored = {
        place: _of_today(name, read_folder(place / "points")) for name, place in results.places(out)
    }
    if not any(stored.values()):
        raise InvalidArgument(
            f"{name} {str(out)!r} has no points below PAPER/FIGURE/FABRIC; give the whole results "
            "folder, in which 'pyrdma run ID' measures"
        )
    return stored


def _known(name: str) -> Experiment | None:
    is_known = name in registry.ids() and name not in registry.broken()
    return registry.load(name) if is_known else None


def _of_today(name: str, measurements: list[Measurement]) -> list[Measurement]:
    experiment = _known(name)
    ours = [m for m in measurements if m.identity["experiment"] == name]
    return ours if experiment is None else results.of_today(experiment, ours)


def _overview(points: Sequence[Measurement]) -> list[tuple[str, str]]:
    """Return what was measured, where and when: names and texts."""

    def several(values: Iterable[Any]) -> str:
        return ", ".join(sorted({str(v) for v in values if v not in (None, "")})) or "unknown"

    flags = {flag for m in points for flag in m.flags}
    times = sorted(m.stopped[:16].replace("T", " ") for m in points)
    experiments = {m.identity["experiment"] for m in points}
    systems = [f"{m.provenance.get('system')}, Linux {m.provenance.get('kernel')}" for m in points]
    return [
        ("Points", f"{len(points)} of {len(experiments)} experiments"),
        ("Fabrics", several(m.identity["fabric"] for m in points)),
        ("Seeds", f"{len({m.identity['seed'] for m in points})}"),
        ("Machine", several(m.machine for m in points)),
        ("System", several(systems)),
        ("pyrdma", several(m.provenance.get("pyrdma") for m in points)),
        ("Measured", f"{times[0]} to {times[-1]} UTC"),
        (
            "Conditions",
            ", ".join(sorted(flags)) or "none flagged",
        ),
    ]


def _measured(points: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield the medians of each experiment on each fabric, with their intervals."""
    by_place: dict[tuple[str, str], list[Measurement]] = {}
    for m in results.newest(points):
        by_place.setdefault((m.identity["experiment"], m.identity["fabric"]), []).append(m)
    for (name, fabric), found in sorted(by_place.items()):
        frame = results.table(sorted(found, key=results.by_value)).intervals()
        rows = frame.head(_MOST_ROWS).to_dict("records")
        cells = [[_number(v) for v in row.values()] for row in rows]
        about = {"name": name, "fabric": fabric, "rest": len(frame) - len(rows)}
        numbers = ("low", "median", "high", "mean", "values")
        yield {**about, "columns": list(frame.columns), "numbers": numbers, "rows": cells}


def _comparison(a: Path, b: Path, made_a: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Return how the numbers and the provenance of two folders differ."""
    stored = _stored(b, "--compare")
    frame = compare(a, b)
    numbers = ("a", "b", "ratio", "low", "high")
    apart = {*numbers, "experiment", "metric", "unit", "fabric", "values_a", "values_b", "differs"}
    rows = []
    listed = frame[frame["differs"] | (frame["fabric"] != "sim")]
    for row in listed.head(_MOST_ROWS).to_dict("records"):
        where = (f"{k}={v}" for k, v in row.items() if k not in apart and v == v and v != "")
        texts = {name: _number(row[name]) for name in numbers}
        if row["fabric"] == "sim" and texts["a"] == texts["b"]:
            texts |= {name: repr(row[name]) for name in ("a", "b")}
        rows.append({**row, **texts, "where": ", ".join(where)})
    made_b = _made_by([m for found in stored.values() for m in found])
    return {
        "a": str(a),
        "b": str(b),
        "compared": len(frame),
        "differ": int(frame["differs"].sum()),
        "rest": len(listed) - len(rows),
        "only": (frame.attrs["only_a"], frame.attrs["only_b"]),
        "rows": rows,
        "labels": [
            f"{n} {i}"
            for n, made in (("A", made_a), ("B", made_b))
            for i in range(1, len(made) + 1)
        ],
        "provenance": [row for row in _rows([*made_a, *made_b]) if row["differs"]],
    }


def _number(value: Any) -> str:
    """Return a cell: numbers short, nothing for a missing one."""
    if value is None or value != value:
        return ""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


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
    decided = [v for v in rows if v.verdict not in ("missed", "not evaluated")]
    waiting = [v for v in rows if v.verdict == "not evaluated"]
    undeclared = len(of_paper) - len(rows)
    return {"decided": decided, "open": waiting, "counts": counts, "waiting": undeclared}


def _figures(
    out: Path, stored: Mapping[Path, Sequence[Measurement]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the figures by paper: name, fabric, title, picture, and a note on other code."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, place in results.places(out):
        pictures = sorted(place.glob("*.png"))
        if not pictures:
            continue
        experiment = _known(name)
        newest = {m.name: m for m in results.newest(stored[place])}
        for picture in pictures:
            figure: dict[str, Any] = {
                "name": f"{name.split('/')[0]}/{picture.stem}",
                "place": place.name,
                "title": experiment.title if experiment else "",
                **_embedded(picture),
            }
            points = figure.pop("points")
            figure["note"] = _note(experiment, newest, points, out) if experiment else ""
            found.setdefault(name.split("/")[0], []).append(figure)
    return found


def _note(
    experiment: Experiment, newest: Mapping[str, Measurement], points: Sequence[str], out: Path
) -> str:
    """Return a word about a figure of these points, if they are not today's."""
    again = f"pyrdma draw {experiment.id}" + (f" --out {out}" if str(out) != "results" else "")
    drawn = [newest[point] for point in points if point in newest]
    if not points:
        return f"drawn by an older version: '{again}' draws it again"
    if len(drawn) < len(points) or any(_is_missing(m, drawn) for m in newest.values()):
        return f"measured again since it was drawn: '{again}' draws it again"
    return results.stale_note(experiment, drawn)


def _is_missing(m: Measurement, drawn: Sequence[Measurement]) -> bool:
    """Return whether a measurement is later than a figure, in which it belongs."""
    same = ("profile", "overrides", "machine")
    if any(m.stopped <= d.stopped for d in drawn):
        return False
    if not any(all(m.identity[name] == d.identity[name] for name in same) for d in drawn):
        return False
    at = [d for d in drawn if d.identity["params"] == m.identity["params"]]
    return not m.identity["quick"] or all(d.identity["quick"] for d in at)


def _embedded(path: Path) -> dict[str, Any]:
    """Return a picture with few colours as base64, whether it is wide, and its points."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(read_regular(path, _MOST_PICTURE)), formats=["PNG"]) as picture:
            points = str(picture.info.get("Points", "")).split()
            small = picture.convert("RGB").quantize(_COLOURS)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Error(f"{path} is no picture: {error}; remove it and run 'pyrdma draw'") from None
    stream = io.BytesIO()
    small.save(stream, "PNG", optimize=True)
    png = base64.b64encode(stream.getvalue()).decode()
    return {"png": png, "wide": small.width > 1.8 * small.height, "points": points}


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
