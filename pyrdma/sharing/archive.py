"""Makes an archive of a results folder: all that its figures and its verdicts need.

An archive holds the points and all that pyrdma makes of them: tables, figures, verdicts. It makes
these from the copied points, as `pyrdma.sharing.verify` does again later, so an archive agrees
with itself. The points that ``pyrdma claims --sensitivity`` measured stay behind; their verdicts
come along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyrdma import claims, provenance, registry, runs
from pyrdma.basis import Basis
from pyrdma.errors import InvalidArgument
from pyrdma.evidence import Evidence
from pyrdma.files import read_regular, write_json
from pyrdma.profiles import FOLDER as PROFILES
from pyrdma.results import check_folder, places, tables
from pyrdma.scratch import scratch_folder
from pyrdma.sensitivity import FOLDER as SENSITIVITY
from pyrdma.store import read_folder

from . import crate

__all__ = ["PROVENANCE", "copy_points", "make", "remake", "sources", "verdicts"]

PROVENANCE = "provenance.json"

_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
_SOURCES = {".py", ".yaml", ".toml", ".md", ".c", ".cc", ".h", ".txt"}

_README = """# Results of pyrdma

Made on {date} by {author}, with pyrdma {version}{commit}, Python {python} and:

{packages}

| folder | content |
|---|---|
| `results/` | points, tables and figures, by paper, experiment and fabric |
| `verdicts/` | the papers' claims, judged by these results, one file per place |
| `experiments/`, `profiles/` | the sources that measured, drew and judged; the papers' claims |
| `provenance.json` | machine, versions, and the digests of current code and profiles |
| `ro-crate-metadata.json` | RO-Crate 1.2: each file with its size and SHA-256 |

`pyrdma verify FILE.zip` checks the digests, makes figures and verdicts again, and compares them
with these. In Python, `rd.load(rd.fetch("FILE.zip"))` is one table of all numbers.

## Licence and citation

The licence of these results is {license}. The sources of pyrdma in `experiments/` and `profiles/`
are under Apache-2.0. To cite the results, name pyrdma {version} and this archive, by its identifier
where it is published or by its SHA-256. To cite a claim, name its paper: `experiments/claims/` has
the titles.
"""


def make(
    results: Path,
    target: Path,
    *,
    license: str = "Apache-2.0",  # noqa: A002 - as the command line's --license
    author: str = "",
    say: Callable[[str], None] = print,
) -> str:
    """Write an archive of a results folder; return the SHA-256 of its file.

    `license` is an SPDX identifier. `say` gets a line for all that could not be drawn. The results
    folder is read alone. Costs the drawing of every figure, half a second for most.

    Raises
    ------
    InvalidArgument
        The folder does not exist or has no points, `target` exists, or the licence has no such
        form.
    Error
        The archive cannot be written, or would be too large.
    """
    check_folder(results, "RESULTS")
    if target.exists():
        raise InvalidArgument(f"--out {str(target)!r} exists; remove it, or give another name")
    if not target.absolute().parent.is_dir():
        raise InvalidArgument(f"--out {str(target)!r}: there is no folder {target.parent}")
    if not _LICENSE.fullmatch(license):
        raise InvalidArgument(
            f"--license {license[:80]!r} is no SPDX identifier; an example: CC-BY-4.0"
        )
    with scratch_folder() as folder:
        copied = folder / "results"
        copy_points(results, copied)
        if not any(places(copied)):
            raise InvalidArgument(
                f"RESULTS {str(results)!r} has no points below PAPER/FIGURE/FABRIC; give the whole "
                "results folder, in which 'pyrdma run ID' measures"
            )
        for reason in remake(copied):
            say(reason)
        _copy_other_figures(results, copied)
        basis = Basis.today(registry.load(name) for name in _installed(copied))
        for place, judged in verdicts(copied, basis).items():
            write_json(folder / "verdicts" / f"{place}.json", {"verdicts": judged})
        for path, source in sources().items():
            crate.write_plainly(folder / path, source.read_bytes())
        made_by = provenance.collect()
        document = {"made": provenance.now(), "by": made_by, "basis": basis.as_dict()}
        write_json(folder / PROVENANCE, document)
        readme = _readme(made_by, license, author)
        crate.write_plainly(folder / "README.md", readme.encode())
        return crate.pack(folder, target, *_about(made_by, license, author, readme))


def copy_points(results: Path, target: Path) -> None:
    """Copy whole points, and what runs and hosts noted beside them; a damaged one is left out.

    Warns
    -----
    DamagedFile
        A point is damaged.
    """
    for _, folder in places(results):
        copied = target / folder.relative_to(results)
        for point in read_folder(folder / "points"):
            _copy(folder / "points" / f"{point.key}.jsonl", copied / "points")
        for name in ("run.json", "hosts.parquet"):
            if (folder / name).is_file():
                _copy(folder / name, copied)
    for record in sorted((results / SENSITIVITY).glob("*/*/sim/verdicts.json")):
        _copy(record, target / record.parent.relative_to(results))


def _copy(path: Path, folder: Path) -> None:
    try:
        content = read_regular(path, crate.MOST_FILE)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be archived: {error}; remove it") from None
    crate.write_plainly(folder / path.name, content)


def _copy_other_figures(results: Path, copied: Path) -> None:
    """Copy the figures that this installation could not draw again."""
    for _, folder in places(results):
        target = copied / folder.relative_to(results)
        for path in sorted([*folder.glob("*.png"), *folder.glob("*.pdf")]):
            if target.is_dir() and not (target / path.name).exists():
                _copy(path, target)


def _installed(results: Path) -> list[str]:
    """Return the ids of experiments with points here that this installation can load."""
    known = set(registry.ids()) - registry.broken().keys()
    return sorted({name for name, _ in places(results)} & known)


def remake(results: Path) -> list[str]:
    """Make the tables and figures of a results folder from its points; return what is missing."""
    missing = []
    for name, folder in places(results):
        points = [p for p in read_folder(folder / "points") if p.identity["experiment"] == name]
        runs.export_tables(points, folder)
    installed = _installed(results)
    for name in sorted({name for name, _ in places(results)}):
        if name not in installed:
            reason = registry.broken().get(name, f"it is not in {registry.root()}")
            missing.append(f"{name}: no figure is drawn and no claim is judged: {reason}")
            continue
        for report in runs.draw(name, results):
            if report.figure_failed:
                missing.append(f"{name}: {report.figure_failed}")
    return missing


def verdicts(results: Path, basis: Basis) -> dict[str, list[dict[str, Any]]]:
    """Return the verdicts of all claims by the results, by `Place`, as JSON has them."""
    names = {name for name, _ in places(results)}
    there = sorted({str(place) for name in names for place in tables(results, name)})
    found = {
        place: [v.as_dict() for v in claims.judged(Evidence(results, place, basis))]
        for place in there
    }
    loaded: dict[str, list[dict[str, Any]]] = json.loads(json.dumps(found))
    return loaded


def sources() -> dict[str, Path]:
    """Return the installed sources by their names in an archive: experiments, claims, profiles."""
    return {
        f"{name}/{path.relative_to(root).as_posix()}": path
        for name, root in (("experiments", registry.root()), ("profiles", PROFILES))
        for path in sorted(root.rglob("*"))
        if path.suffix in _SOURCES and path.is_file() and "__pycache__" not in path.parts
    }


def _readme(made_by: dict[str, Any], license: str, author: str) -> str:  # noqa: A002
    git = made_by["git"]
    changed = "" if not git or git["clean"] else ", with changes"
    return _README.format(
        date=provenance.now()[:10],
        author=author or "an author who is not named",
        version=made_by["pyrdma"],
        commit=f" (commit {git['commit']}{changed})" if git else "",
        python=made_by["python"],
        packages="\n".join(f"- {n} {version}" for n, version in made_by["packages"].items()),
        license=license,
    )


def _about(
    made_by: dict[str, Any],
    license: str,  # noqa: A002
    author: str,
    readme: str,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the properties of the data set, and the entities that it names."""
    link = f"https://spdx.org/licenses/{license}"
    about = {
        "name": "Results of pyrdma",
        "description": readme.partition("\n\n")[2].partition("\n\n")[0],
        "datePublished": provenance.now()[:10],
        "license": {"@id": link},
        "mentions": {"@id": "#archive"},
    }
    tool = {"@id": "#pyrdma", "@type": "SoftwareApplication", "name": "pyrdma"}
    action = {"@id": "#archive", "@type": "CreateAction", "name": "pyrdma archive"}
    others = [
        {"@id": link, "@type": "CreativeWork", "name": license},
        {**tool, "version": made_by["pyrdma"], "license": "Apache-2.0"},
        {**action, "instrument": {"@id": "#pyrdma"}, "result": {"@id": "./"}},
    ]
    if author:
        about["author"] = {"@id": "#author"}
        others.append({"@id": "#author", "@type": "Person", "name": author})
    return about, others
