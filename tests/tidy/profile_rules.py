"""The rule of the profiles: each parameter names its unit and its source, and is stated once.

The rule complains about a parameter that equals the inherited one, source included. Files below
``profiles/parts`` are parts, the others are testbeds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tests.tidy.tree import Source

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEADER = ("name", "title", "testbed", "nodes", "cores_per_node", "cpu_model", "nic_model")
PROFILES = "pyrdma/profiles/"
PARTS = "pyrdma/profiles/parts/"
FIELDS = {"value", "unit", "source"}
SOURCE_KINDS = ("vendor", "standard", "calibrated", "measured", "estimate")
# The last word of a name is its unit.
UNIT_OF_SUFFIX = {"ns": "ns", "us": "us", "bytes": "B", "gbps": "Gbps"}

Roles = Mapping[str, str]
Entries = dict[str, Any]
"""Parameters by ``table.key``."""


def claim_roles(files: Iterable[Source]) -> dict[str, str]:
    """Roles by claim id (`<paper>/<id>`), from experiments/claims/*.yaml."""
    roles = {}
    for file in files:
        if file.parts[:2] != ("experiments", "claims") or not file.path.endswith(".yaml"):
            continue
        data = yaml.safe_load(file.text)
        paper = data["paper"]["key"]
        for claim in data["claims"]:
            roles[f"{paper}/{claim['id']}"] = claim["role"]
    return roles


def profile_sources(files: Iterable[Source], roles: Roles) -> list[str]:
    """Complaints about profiles; the sources of parameters are calibration claims, never others."""
    complaints = []
    documents: dict[str, dict[str, Any]] = {}
    for file in files:
        if not (file.path.startswith(PROFILES) and file.path.endswith(".toml")):
            continue
        try:
            documents[file.path] = tomllib.loads(file.text)
        except tomllib.TOMLDecodeError as error:
            complaints.append(f"{file.path}: not TOML: {error}")
    resolved: dict[str, Entries] = {}
    for path, document in documents.items():
        for name, entry in _stated(document).items():
            key = name.partition(".")[2]
            complaints += [f"{path}: {name}: {p}" for p in _entry_problems(key, entry, roles)]
        try:
            inherited = _inherited(path, documents)
        except LookupError as error:
            complaints.append(f"{path}: {error.args[0]}")
            continue
        complaints += [
            f"{path}: {name} equals the inherited one; remove it"
            for name, entry in _stated(document).items()
            if inherited.get(name) == entry
        ]
        if not path.startswith(PARTS):
            complaints += [f"{path}: has no `{key}`" for key in HEADER if key not in document]
            resolved[path] = {**inherited, **_stated(document)}
    every = {name for entries in resolved.values() for name in entries}
    for path, entries in sorted(resolved.items()):
        complaints += [
            f"{path}: has no {name}, which others have" for name in sorted(every - entries.keys())
        ]
    return complaints


def _stated(document: Mapping[str, Any]) -> Entries:
    return {
        f"{table}.{key}": entry
        for table, entries in document.items()
        if isinstance(entries, dict)
        for key, entry in entries.items()
    }


def _inherited(path: str, documents: Mapping[str, Mapping[str, Any]]) -> Entries:
    """Parameters that a file takes from those that it extends; the later ones override."""
    stated = documents[path].get("extends", [])
    found: Entries = {}
    for name in [stated] if isinstance(stated, str) else stated:
        parents = [p for p in (f"{PROFILES}{name}.toml", f"{PARTS}{name}.toml") if p in documents]
        if not parents:
            raise LookupError(f"extends {name!r}, which does not exist")
        found |= {**_inherited(parents[0], documents), **_stated(documents[parents[0]])}
    return found


def _entry_problems(key: str, entry: Any, roles: Roles) -> list[str]:
    if not isinstance(entry, dict) or not entry.keys() >= FIELDS:
        return ['write { value = .., unit = "..", source = ".." }']
    problems = []
    if isinstance(entry["value"], bool) or not isinstance(entry["value"], (int, float)):
        problems.append(f"value {entry['value']!r} is not a number")
    if not isinstance(entry["unit"], str) or not entry["unit"]:
        problems.append("names no unit")
    else:
        expected = UNIT_OF_SUFFIX.get(key.rsplit("_", 1)[-1])
        if expected and entry["unit"] != expected:
            problems.append(f"unit is {entry['unit']!r}, but the name says {expected!r}")
    problems += _source_problems(entry["source"], roles)
    return problems


def _source_problems(source: Any, roles: Roles) -> list[str]:
    if not isinstance(source, str) or not source.strip():
        return ["names no source"]
    kind, separator, text = source.partition(":")
    if separator and kind in SOURCE_KINDS:
        return [] if text.strip() else [f"source '{kind}:' says nothing"]
    role = roles.get(source)
    if role is None:
        kinds = ", ".join(f"'{kind}: ...'" for kind in SOURCE_KINDS)
        return [f"source {source!r} is no claim; give <paper>/<claim> or one of {kinds}"]
    if role != "calibration":
        return [f"source {source!r} is a {role} claim; only calibration claims set parameters"]
    return []
