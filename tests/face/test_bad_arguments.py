"""Every public callable, with bad values in each of its parameters: the call names what is wrong.

The values and the callables are found, not listed: a new public name without a good call in
`calls.CALLS` fails the first test, and with one it is tested with every bad value.
"""

from __future__ import annotations

import inspect
import math
import numbers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import workload
from tests.face import program_calls, public
from tests.face.calls import CALLS, SIGNED_OF_SYSTEMS, Call
from tests.face.world import World


class Unprintable:
    """A value without a text."""

    def __repr__(self) -> str:
        raise RuntimeError


INFINITY, NAN = math.inf, math.nan
LONG = "x" * 100_000
BAD: list[Any] = [
    *(
        None,
        True,
        False,
        -1,
        0,
        2**31,
        2**63,
        2**64,
        10**30,
        10**5000,
        0.5,
        NAN,
        INFINITY,
        -INFINITY,
    ),
    *("", "x", LONG, "a\0b", "\udc80", "\x1b[2J", b"x", [], {}, (), set(), object(), Unprintable()),
    *([None], {None: None}, {"x": NAN}, lambda *_: None, Ellipsis),
]

FREE = {"decide.best winner", *program_calls.FREE}
"""Parameters that take any value: of deciders, compared with what was measured; of histories."""

SIGNED = {
    *SIGNED_OF_SYSTEMS,
    *("verbs.fetch_add addend", "verbs.compare_swap expected", "verbs.compare_swap desired"),
    *("devices.Wish gid_index", "workload.VerbsLoad inline", "units.convert value"),
    *("decide.ProfileValue scale", "decide.profile scale", "result.Row value", *FREE),
}
"""Parameters that take -1."""

SAID = {"name_or_path": "profile", "profile_name": "profile"}
"""Words of errors that name a parameter in another way."""

LONGEST = 1500
"""Length of an error's text, at most: a long value is shortened."""


def workload_names() -> list[str]:
    """Return the workload classes, whose fields are the native parameters."""
    return [n for n in vars(workload)["__all__"] if n not in ("Custom", "Workload", "Ycsb")]


def generated() -> dict[str, Any]:
    """Return the generated classes by their public names."""
    kinds = [getattr(workload, name) for name in workload_names()]
    return {public.name_of(kind, kind): kind for kind in kinds}


NAMES = sorted({*CALLS, *generated()})


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some callables write into the working folder


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Worlds]:
    made = Worlds(tmp_path)
    yield made
    made.renew()


class Worlds:
    """The world of a test, which is made anew after each call that was accepted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.world = World(folder)
        self._good: Call | None = None

    def good_call(self, name: str) -> Call:
        """Return the callable of the test and its good arguments."""
        if self._good is None:
            self._good = CALLS[name](self.world) if name in CALLS else (generated()[name], {})
        return self._good

    def renew(self) -> None:
        self.world.close()
        self.world = World(self._folder)
        self._good = None


def test_every_public_callable_has_a_good_call(worlds: Worlds) -> None:
    found = public.callables()
    assert sorted(found) == NAMES
    for name, call in CALLS.items():
        assert sorted(call(worlds.world)[1]) == sorted(public.parameters(found[name])), name


@pytest.mark.parametrize("name", CALLS)
def test_the_good_calls_are_good(name: str, worlds: Worlds) -> None:
    call, given = worlds.good_call(name)
    state: tuple[type[rd.Error], ...] = (
        rd.Unavailable,
        rd.Exhausted,
    )  # the machine has no such device or memory
    if name == "fuzz.minimise":
        state = (rd.InvalidArgument,)  # the seed has no violation
    with suppress(*state):
        call(**given)


@pytest.mark.parametrize("name", NAMES)
def test_bad_values_are_refused_by_the_call(name: str, worlds: Worlds) -> None:
    complaints = []
    for parameter in _parameters(name):
        for value in BAD:
            complaint = _complaint(name, parameter, value, worlds)
            if complaint:
                complaints.append(f"{parameter}={_short(value)}: {complaint}")
    assert not complaints, "\n".join(complaints)


def _parameters(name: str) -> list[str]:
    return list(public.parameters(public.callables()[name]))


def _complaint(name: str, parameter: str, value: Any, worlds: Worlds) -> str:
    """Call with one bad value; return what is wrong with the outcome."""
    call, given = worlds.good_call(name)
    try:
        call(**{**given, parameter: value})
    except rd.Error as error:
        return _fault_of(error, parameter, value)
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error)[:200]}"
    worlds.renew()
    good = given[parameter] if parameter in given else _default(name, parameter)
    if f"{name} {parameter}" in FREE or _may_be(value, good, call, parameter):
        if value == -1 and type(value) is int and f"{name} {parameter}" not in SIGNED:
            return "was accepted"
        return ""
    return "was accepted"


def _default(name: str, parameter: str) -> Any:
    from pyrdma._native import native

    core: Any = native()
    rows = core.measure.workload_parameters(generated()[name].native)
    row = next(row for row in rows if row["name"] == parameter)
    return bool(row["default"]) if row["unit"] == "bool" else row["default"]


def _fault_of(error: rd.Error, parameter: str, value: Any) -> str:
    text = str(error)
    if len(text) > LONGEST:
        return f"has an error of {len(text)} characters"
    if not text.isprintable():
        return f"has an error that is not printable: {text!r}"
    if not isinstance(error, rd.InvalidArgument) or "has no violation" in text:
        return ""  # the value is in bounds; the machine or the state refuses
    if parameter not in text and SAID.get(parameter, parameter) not in text:
        return f"has an error that does not name it: {text}"
    if isinstance(value, str) and 0 < len(value) < 10 and repr(value)[1:-1] not in text:
        return f"has an error that does not name the value: {text}"
    if isinstance(value, (int, float)) and abs(value) < 1e40 and str(value) not in text:
        return f"has an error that does not name the value: {text}"
    return ""


def _may_be(value: Any, good: Any, call: Any, parameter: str) -> bool:
    """Return whether a value is of the kind of the good one, and can have a meaning."""
    if value is None:
        return _takes_none(call, parameter) or good is None
    if isinstance(value, str) and ("\0" in value or "\udc80" in value):
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, int) and abs(value) > 2**64 - 1 and not isinstance(good, float):
        return False
    if isinstance(good, bool) or isinstance(value, bool):
        return isinstance(good, bool) and isinstance(value, bool)
    kinds = (numbers.Integral, numbers.Real, (str, os.PathLike), bytes, Mapping, (Sequence, set))
    for kind in kinds:
        if isinstance(good, kind):
            return (
                isinstance(value, kind)
                and value not in ([None], {None: None})
                and NAN not in (value.values() if isinstance(value, dict) else ())
            )
    return callable(good) and callable(value)


def _takes_none(call: Any, parameter: str) -> bool:
    try:
        found = inspect.signature(call).parameters.get(parameter)
    except ValueError:  # a native function
        text = public.docstring(call)
        return re.search(rf"\b{parameter}: [^:]* = None", text) is not None
    return found is not None and "None" in str(found.annotation)


def _short(value: Any) -> str:
    try:
        return repr(value)[:40]
    except Exception:
        return type(value).__name__
