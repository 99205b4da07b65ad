"""A list of mutants, and the one text that holds the correct and every wrong code of a file.

A mutant replaces one place of one file. In the text each place asks at run time which mutant is on
("mutant schemata", Untch, Offutt and Harrold, 1993). So one build tries all mutants.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HEADER = "chosen_mutant.h"
HEADER_TEXT = """// Made by tests/mutants. The number of the mutant that is on; 0: none.
#pragma once
#include <optional>
namespace pyrdma::mutants {
inline unsigned chosen = 0;
}
#define PYRDMA_MUTANT(number) \\
  (__builtin_expect(static_cast<long>(::pyrdma::mutants::chosen == (number)), 0L) != 0)
"""


class ListError(Exception):
    """A list of mutants does not fit the code."""


@dataclass(frozen=True)
class Mutant:
    """A wrong piece of code.

    Attributes
    ----------
    number
        Its number in the executable, from 1.
    find
        The correct code, which stands once in `file`: an expression, or statements that end with
        ``;`` or ``}``.
    breaks
        The field of the protocol, or the fence, that it breaks, and how.
    scenarios
        The scenarios that may find it.
    options
        Options of these scenarios.
    equivalent
        The reason why no run can show a difference; empty for a mutant that must be found.
    quick
        Whether every run of the tests tries it.
    at
        Where `find` stands in the file, if it may stand there more than once.
    form
        Of a lock: ``removed``, or ``narrowed``, which ends it early. `find` is its declaration, and
        what it guards up to that end.
    """

    number: int
    name: str
    file: str
    find: str
    replace: str
    breaks: str
    scenarios: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    equivalent: str = ""
    quick: bool = False
    at: int | None = None
    form: str = ""


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file has."""
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return document


def load(path: Path) -> list[Mutant]:
    """Read a list. Each entry has the fields of `Mutant` but its number."""
    document = read_toml(path)
    defaults = document.get("defaults", {})
    mutants = []
    for number, entry in enumerate(document["mutant"], 1):
        values = {**defaults, **entry}
        values["scenarios"] = tuple(values["scenarios"])
        values["options"] = {key: str(value) for key, value in values.get("options", {}).items()}
        try:
            mutants.append(Mutant(number=number, **values))
        except TypeError as error:
            raise ListError(f"{path.name}: entry {number}: {error}") from None
    names = [mutant.name for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ListError(f"{path.name}: {', '.join(sorted(twice))}: give each mutant its own name")
    return mutants


def schema(text: str, mutants: Iterable[Mutant]) -> str:
    """Return `text` with every mutant at its place."""
    sites: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in mutants:
        found = text.count(mutant.find)
        if mutant.at is None and found != 1:
            raise ListError(
                f"{mutant.name}: the code to find stands {found} times in {mutant.file}; give code "
                "that stands there once"
            )
        begin = text.index(mutant.find, mutant.at)
        sites.setdefault((begin, begin + len(mutant.find)), []).append(mutant)
    ordered = sorted(sites, key=lambda site: (site[0], -site[1]))
    for one, other in itertools.combinations(ordered, 2):
        if one[0] < other[0] < one[1] < other[1]:
            names = f"{sites[one][0].name} and {sites[other][0].name}"
            raise ListError(f"the code of {names} overlaps; let one contain the other")
    return f'#include "{HEADER}"\n' + _render(text, 0, len(text), ordered, sites)


def _render(
    text: str,
    begin: int,
    end: int,
    inside: Sequence[tuple[int, int]],
    sites: Mapping[tuple[int, int], Sequence[Mutant]],
) -> str:
    """Return the text from `begin` to `end`, with the sites `inside`, in order."""
    parts = []
    at = begin
    for site in inside:
        if site[0] < at:
            continue  # within the site before it, which has rendered it
        nested = [other for other in inside if site[0] <= other[0] and other[1] <= site[1]]
        nested.remove(site)
        correct = _render(text, *site, nested, sites)
        parts += [text[at : site[0]], _choice(correct, sites[site])]
        at = site[1]
    return "".join([*parts, text[at:end]])


def _choice(correct: str, mutants: Sequence[Mutant]) -> str:
    if mutants[0].form:
        return _weaker_lock(correct, mutants)
    if mutants[0].find.rstrip().endswith((";", "}")):
        wrong = "".join(f"if (PYRDMA_MUTANT({m.number})) {{ {m.replace} }} else " for m in mutants)
        return f"{{ {wrong}{{ {correct} }} }}"
    wrong = "".join(f"PYRDMA_MUTANT({m.number}) ? ({m.replace}) : " for m in mutants)
    return f"({wrong}({correct}))"


def _weaker_lock(correct: str, mutants: Sequence[Mutant]) -> str:
    """Return a lock that is not taken, or is released at the end of `correct`."""
    found = re.match(r"(?:const\s+)?([^(]+?)\s+(\w+)(\([^;]*\));(.*)", correct, re.DOTALL)
    assert found is not None
    kind, name, arguments, guarded = found.groups()
    if kind.startswith("std::") and not kind.endswith(">"):
        kind = f"decltype({kind}{arguments})"
    on = {
        form: " || ".join(f"PYRDMA_MUTANT({m.number})" for m in mutants if m.form == form)
        or "false"
        for form in ("removed", "narrowed")
    }
    return (
        f"std::optional<{kind}> {name}; if (!({on['removed']})) {name}.emplace{arguments};"
        f"{guarded}if ({on['narrowed']}) {name}.reset(); "
    )
