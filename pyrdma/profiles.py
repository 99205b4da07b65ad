"""Profiles: the costs of a testbed's nodes, NICs, links and switches, each with its source.

A profile is a TOML file. Its head names the testbed; a parameter is
``key = { value = 25, unit = "Gbps", source = "erpc/cx4_link_rate" }`` in one of the tables
``topology link switch pcie nic cpu control variance storage``. A source is ``<paper>/<claim>`` of a
calibration claim, or begins with one of `SOURCES`.

A file states only the parameters of its testbed and inherits the others::

    name = "mine"
    extends = "cx5"                      # or a list; or the path of a file, relative to this one

    [link]
    rate_gbps = { value = 25, unit = "Gbps", source = "measured: ib_write_bw between two nodes" }

``extends`` names profiles or parts of the package, or ``.toml`` files. A later name overrides an
earlier one, and the file itself overrides all. The key ``name`` is not inherited. A file that
several others extend is read once, at its first place.

The package's testbeds extend the parts in ``profiles/parts``: ``base`` (most parameters), the
packets of ``infiniband`` or ``roce``, and a generation of NICs. A part is not a testbed: no cluster
can use it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ._native import native
from .arguments import FilePath, checked, shown
from .errors import InvalidArgument, nearest
from .result import Value

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["SOURCES", "Parameter", "Profile", "names", "parameters", "parse_overrides"]

FOLDER = Path(__file__).with_name("profiles")
_PARTS = FOLDER / "parts"

SOURCES = ("vendor:", "standard:", "calibrated:", "measured:", "estimate:")
"""The prefixes of sources that are not claims."""

_ESTIMATE = re.compile(r"^estimate:|\bassum(?:ed|ption)\b")

_HEAD: dict[str, type] = {
    "name": str,
    "title": str,
    "testbed": str,
    "nodes": int,
    "cores_per_node": int,
    "cpu_model": str,
    "nic_model": str,
}


@cache
def parameters() -> Mapping[str, tuple[str, float, float]]:
    """Return every parameter: its unit, and the least and largest value allowed.

    The native simulator has the table; a profile must have every parameter of it.
    """
    core: Any = native()
    return {p["name"]: (p["unit"], p["min"], p["max"]) for p in core.sim.parameters()}


_UNIT_NAMES = {
    "B": {"B", "byte", "bytes"},
    "bool": {"bool", "0/1", "flag"},
}


@dataclass(frozen=True)
class Parameter:
    """One number of a profile, and the name of the file that states it."""

    value: float
    unit: str
    source: str
    file: str = ""

    @property
    def is_estimate(self) -> bool:
        """Whether the value is assumed, rather than published, calibrated or measured."""
        return _ESTIMATE.search(self.source) is not None


@dataclass(frozen=True)
class Profile:
    """A validated profile.

    Attributes
    ----------
    parameters
        ``table.key`` -> parameter, in the order of the native table.
    overrides
        Values that replaced the file's, for provenance.
    """

    name: str
    title: str
    testbed: str
    nodes: int
    cores_per_node: int
    cpu_model: str
    nic_model: str
    path: Path
    parameters: Mapping[str, Parameter]
    overrides: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    @checked
    def load(cls, name_or_path: FilePath, overrides: Mapping[str, float] | None = None) -> Profile:
        """Load a profile by its name or from a file, and check it.

        Raises
        ------
        InvalidArgument
            The file, the key, the unit and the allowed range are named.
        """
        path = find(name_or_path)
        files = _files(path)
        head = {key: _head(path, files, key, kind) for key, kind in _HEAD.items()}
        found = _parameters(path, files)
        for key, value in (overrides or {}).items():
            found[key] = Parameter(
                _checked(key, value, "override"),
                parameters()[key][0],
                "override",
                "override",
            )
        return cls(path=path, parameters=found, overrides=dict(overrides or {}), **head)

    def values(self) -> dict[str, float]:
        """Return ``table.key`` -> value, as the native simulator takes it."""
        return {key: parameter.value for key, parameter in self.parameters.items()}

    def digest(self) -> str:
        """Return a hash of the values, which names the profile in provenance."""
        text = json.dumps(self.values(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def names() -> list[str]:
    """Return the names of the profiles that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@checked
def find(name_or_path: FilePath) -> Path:
    """Return the file of a profile given by name or path."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        if not path.is_file():
            raise InvalidArgument(f"{path}: no such profile file")
        return path
    name = str(name_or_path)
    if name not in names():
        problem = (
            f"{name!r} is a part of profiles, not a testbed"
            if name in _parts()
            else (f"unknown profile {shown(name)}{nearest(name, names())}")
        )
        raise InvalidArgument(
            f"{problem}; there are: {', '.join(names())}; or give the path of a .toml file"
        )
    return FOLDER / f"{name}.toml"


def _parts() -> list[str]:
    return sorted(path.stem for path in _PARTS.glob("*.toml"))


def stated_by_parts(parts: Iterable[str]) -> dict[str, Parameter]:
    """Return the parameters that parts of profiles state; a later part overrides an earlier one."""
    found: dict[str, Parameter] = {}
    for part in parts:
        path = _PARTS / f"{part}.toml"
        found.update(_stated(path, _parse(path)))
    return found


@checked
def parse_overrides(settings: Mapping[str, Value | Sequence[Value]]) -> dict[str, float]:
    """Return the `settings` that name profile parameters (``table.key``), checked."""
    found = {}
    for key, value in settings.items():
        if "." in key:
            found[key] = _checked(key, value, "--set")
    return found


def _range(key: str) -> str:
    unit, low, high = parameters()[key]
    return f"{low:g} to {high:g} {unit}"


def _checked(key: str, value: Any, where: str | Path) -> float:
    if key not in parameters():
        raise InvalidArgument(
            f"{where}: unknown parameter {shown(key)}{nearest(key[:100], parameters())}"
        )
    unit, low, high = parameters()[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgument(f"{where}: {key} = {value!r} is not a number; allowed: {_range(key)}")
    if not low <= value <= high:
        raise InvalidArgument(
            f"{where}: {key} = {value:g} {unit} is outside the allowed range {_range(key)}"
        )
    return float(value)


_Document = Mapping[str, Any]
_Files = dict[Path, _Document]
"""A profile's files and their contents: the extended files first, the profile itself last."""


def _files(path: Path) -> _Files:
    """Read a profile and every file that it extends, each once."""
    found: dict[Path, _Document] = {}

    def read(file: Path, heirs: list[Path]) -> None:
        identity = file.resolve()
        if identity in (heir.resolve() for heir in heirs):
            circle = " extends ".join(str(heir) for heir in [*heirs, file])
            raise InvalidArgument(f"{circle}: a circle; remove one of these `extends`")
        if identity in (other.resolve() for other in found):
            return
        document = _parse(file)
        for parent in _parents(file, document):
            read(parent, [*heirs, file])
        found[file] = document

    read(path, [])
    return found


@functools.lru_cache(maxsize=64)
def _document(text: str) -> _Document:
    """Parse a text once: judging a results folder loads its profiles some hundred times."""
    document: _Document = tomllib.loads(text)
    return document


def _parse(path: Path) -> _Document:
    try:
        document = _document(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{path}: not valid TOML: {error}") from None
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error.strerror}") from None
    return document


def _parents(path: Path, document: _Document) -> list[Path]:
    stated = document.get("extends", [])
    listed = [stated] if isinstance(stated, str) else stated
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise InvalidArgument(
            f'{path}: extends = {stated!r} must be a name or a list of names, for example "cx5"'
        )
    return [_parent(path, name) for name in listed]


def _parent(path: Path, name: str) -> Path:
    if name.endswith(".toml"):
        sibling = path.parent / name
        try:
            there = sibling.is_file()
        except OSError:  # for example a name that is too long
            there = False
        if not there:
            raise InvalidArgument(
                f"{path}: extends {name!r}, but there is no file {sibling}; "
                "give its path relative to this file"
            )
        return sibling
    for folder, known in ((FOLDER, names()), (_PARTS, _parts())):
        if name in known:
            return folder / f"{name}.toml"
    every = [*names(), *_parts()]
    raise InvalidArgument(
        f"{path}: extends unknown profile {name!r}{nearest(name, every)}; "
        f"there are: {', '.join(every)}; or give the path of a .toml file"
    )


def _head(path: Path, files: _Files, key: str, kind: type) -> Any:
    stating = path
    if key != "name":
        stating = next((file for file in reversed(files) if key in files[file]), path)
    if key not in files[stating]:
        raise InvalidArgument(f"{path}: head key {key!r} ({kind.__name__}) is missing")
    value = files[stating][key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidArgument(f"{stating}: {key} = {value!r} must be of type {kind.__name__}")
    if isinstance(value, int) and value < 1:
        raise InvalidArgument(f"{stating}: {key} = {value} must be at least 1")
    return value


def _entries(path: Path, document: _Document) -> Iterator[tuple[str, Any]]:
    tables = {key.split(".")[0] for key in parameters()}
    for table, body in document.items():
        if table in _HEAD or table == "extends":
            continue
        if table not in tables or not isinstance(body, dict):
            hint = nearest(table, [*tables, *_HEAD, "extends"])
            raise InvalidArgument(f"{path}: unknown key {table!r}{hint}")
        for key, entry in body.items():
            yield f"{table}.{key}", entry


def _parameters(path: Path, files: _Files) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for file, document in files.items():
        found.update(_stated(file, document))
    missing = [key for key in parameters() if key not in found]
    if missing:
        key = missing[0]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InvalidArgument(
            f"{path}: parameter {key}{more} missing; allowed: {_range(key)}; "
            'state it, or extend a profile that does, for example extends = "cx5"'
        )
    return {key: found[key] for key in parameters()}


def _stated(path: Path, document: _Document) -> dict[str, Parameter]:
    """Return the parameters that one file states."""
    found: dict[str, Parameter] = {}
    for key, entry in _entries(path, document):
        if key not in parameters():
            raise InvalidArgument(f"{path}: unknown parameter {key!r}{nearest(key, parameters())}")
        unit = parameters()[key][0]
        example = f'{{ value = ..., unit = "{unit}", source = "..." }}'
        if not isinstance(entry, dict) or set(entry) != {"value", "unit", "source"}:
            raise InvalidArgument(f"{path}: {key} must be {example}; allowed values: {_range(key)}")
        if entry["unit"] not in _UNIT_NAMES.get(unit, {unit}):
            raise InvalidArgument(
                f"{path}: {key} has unit {entry['unit']!r}; it must be {unit!r}, "
                f"allowed values: {_range(key)}"
            )
        source = entry["source"]
        if not isinstance(source, str) or not (source.startswith(SOURCES) or "/" in source):
            raise InvalidArgument(
                f"{path}: {key} has source {source!r}; it must be <paper>/<claim> or begin with "
                f"one of {', '.join(SOURCES)}"
            )
        found[key] = Parameter(_checked(key, entry["value"], path), unit, source, path.name)
    return found
