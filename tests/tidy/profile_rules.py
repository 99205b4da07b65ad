"""The rule of the profiles: each parameter names its unit and its source."""

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
FIELDS = {"value", "unit", "source"}
SOURCE_KINDS = ("vendor", "standard", "calibrated", "measured", "estimate")
# The last word of a name is its unit.
UNIT_OF_SUFFIX = {"ns": "ns", "us": "us", "bytes": "B", "gbps": "Gbps"}

Roles = Mapping[str, str]


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
    """Complaints about profiles; a validation claim as source is the worst of them."""
    complaints = []
    parameters: dict[str, set[str]] = {}
    for file in files:
        if file.parts[:2] != ("pyrdma", "profiles") or not file.path.endswith(".toml"):
            continue
        try:
            data = tomllib.loads(file.text)
        except tomllib.TOMLDecodeError as error:
            complaints.append(f"{file.path}: not TOML: {error}")
            continue
        complaints += [f"{file.path}: has no `{key}`" for key in HEADER if key not in data]
        names = parameters.setdefault(file.path, set())
        for table, entries in data.items():
            if not isinstance(entries, dict):
                continue
            for key, entry in entries.items():
                names.add(f"{table}.{key}")
                complaints += [
                    f"{file.path}: {table}.{key}: {problem}"
                    for problem in _entry_problems(key, entry, roles)
                ]
    every = set().union(*parameters.values()) if parameters else set()
    for path, names in sorted(parameters.items()):
        complaints += [
            f"{path}: has no {name}, which others have" for name in sorted(every - names)
        ]
    return complaints


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
