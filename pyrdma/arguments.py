"""Checks of arguments against the annotations of a function, and bounds for annotations.

Every public function and class of the package is `checked`. A bad argument then ends the call
itself with `pyrdma.InvalidArgument`, which names the parameter, the value, and what is allowed.
Python's own TypeError remains for missing and unknown keywords.

- ``int`` is a whole number and not a bool; ``float`` is a finite number and not a bool.
- `Between` in an ``Annotated`` type adds bounds; a ``Literal`` lists choices.
- ``str`` has no control characters but newline and tab, and no lone surrogates: terminals, files
  and native functions do not take these.
- `FilePath` and `FileName` are texts or paths that a file system can hold.
- Elements of mappings, lists and tuples are checked; those of an ``Iterable`` are not.
"""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
import math
import numbers
import reprlib
import sys
import types
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from .errors import InvalidArgument, Unavailable, nearest

__all__ = [
    "Between",
    "Count",
    "Duration",
    "FileName",
    "FilePath",
    "Fraction",
    "Jobs",
    "OneOf",
    "Repetitions",
    "Seconds",
    "Seed",
    "check",
    "checked",
    "kinds_of",
    "shown",
    "whole",
]

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class Between:
    """Bounds of a number, both allowed; None: no upper bound."""

    least: float
    most: float | None = None

    def __str__(self) -> str:
        if self.most is None:
            return f" of at least {self.least}"
        return f" from {self.least} to {self.most}"

    def has(self, number: float) -> bool:
        """Return whether the number is within the bounds."""
        return number >= self.least and (self.most is None or number <= self.most)


@dataclass(frozen=True)
class OneOf:
    """The choices of a text that type checkers need not know."""

    choices: tuple[str, ...]

    def __str__(self) -> str:
        return " or ".join(map(repr, self.choices))

    def has(self, text: str) -> bool:
        """Return whether the text is a choice."""
        return text in self.choices


@dataclass(frozen=True)
class _OfFiles:
    """Marks a path, or a text that is the name of one file."""

    name: bool
    most: int
    """Longest name of a file, in bytes."""

    def __str__(self) -> str:
        return "the name of a file" if self.name else "a path"

    def has(self, text: str) -> bool:
        """Return whether a file system can hold the path."""
        if self.name and (text in ("", ".", "..") or "/" in text):
            return False
        return all(len(part.encode()) <= self.most for part in text.split("/"))


Seed = Annotated[int, Between(0, 2**64 - 1)]
Count = Annotated[int, Between(1, 2**31 - 1)]
Jobs = Annotated[int, Between(1, 4096)]
"""A number of processes."""
Repetitions = Annotated[int, Between(1, 10**6)]
"""A number of measurements of one point."""
Fraction = Annotated[float, Between(0, 1)]
Seconds = Annotated[float, Between(0, 1e6)]
Duration = Annotated[float, Between(1e-9, 1e6)]
"""A time in seconds that is not 0: the clocks count nanoseconds."""
FilePath = Annotated[str | Path, _OfFiles(False, 255)]
FileName = Annotated[str, _OfFiles(True, 200)]

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: object) -> str:
    """Return a value for a message: on one line, escaped, and shortened if it is long."""
    if isinstance(value, bytes):  # reprlib would call repr on all of them
        value = value[:100]
    try:
        return _SHORT.repr(value)
    except Exception:  # a class of the caller may have a broken repr; Python refuses huge integers
        return f"a {type(value).__name__} without a text"


def whole(name: str, value: object, least: int = 0, most: int = 2**64 - 1) -> int:
    """Return a whole number that is within its bounds."""
    number = index(value) if _is_whole(value) else None  # type: ignore[arg-type]
    if number is None or not least <= number <= most:
        raise InvalidArgument(_refusal(name, value, f"a whole number{Between(least, most)}"))
    return number


def check(name: str, value: object, kind: Any) -> None:
    """Raise InvalidArgument unless `value` is of the annotated `kind`."""
    problem = _problem(name, value, kind)
    if problem:
        raise InvalidArgument(problem)


def checked(declared: T) -> T:
    """Check the arguments of a function, or of a class's constructor, against its annotations.

    If the function lacks a module of an extra of pyrdma, its error says which extra.
    """
    if isinstance(declared, type):
        # The constructor of a class that inherits it checks its own annotations.
        declared.__init__ = checked(declared.__init__)  # type: ignore[misc]
        return cast(T, declared)
    parameters = inspect.signature(declared).parameters.values()
    named = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]

    usual: dict[str, Callable[[Any], bool]] = {}

    @functools.wraps(declared)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not usual:
            kinds = kinds_of(declared)
            usual.update({name: _usual(kinds.get(name, Any)) for name in named})
        for name, value in zip(places, args, strict=False):
            if not usual[name](value):
                check(name, value, kinds_of(declared).get(name, Any))
        for name, value in kwargs.items():
            if name in named and not usual[name](value):
                check(name, value, kinds_of(declared).get(name, Any))
        try:
            return declared(*args, **kwargs)
        except ModuleNotFoundError as error:
            from .extras import lacking_extra

            reason = lacking_extra(error.name)
            if not reason:
                raise
            raise Unavailable(reason) from error

    return cast(T, call)


def _usual(kind: Any) -> Callable[[Any], bool]:
    """Return a function that knows the usual values of a kind; `check` judges all others.

    `check` takes longer than some operations of a simulated node program.
    """
    if kind is Any:
        return lambda _: True
    bounds: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, *bounds = get_args(kind)  # type: ignore[assignment]
    if kind in (int, float) and all(isinstance(mark, Between) for mark in bounds):
        # A float that is not finite is not between these.
        least = max((mark.least for mark in bounds), default=-sys.float_info.max)
        most = min(sys.float_info.max if b.most is None else b.most for b in (*bounds, Between(0)))
        return lambda value: type(value) is kind and least <= value <= most
    is_own_class = isinstance(kind, type) and kind.__module__.split(".")[0] == "pyrdma"
    if kind in (bool, bytes) or (is_own_class and not bounds):
        return lambda value: type(value) is kind
    return lambda _: False


class _Absent(type):
    """Stands for a class that a module imports for type checkers only; compared by its name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name, (), {})

    def __instancecheck__(cls, value: object) -> bool:
        return cls.__name__ in (kind.__name__ for kind in type(value).__mro__)


class _Names(dict[str, Any]):
    """The names that a module lacks at run time."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__()
        self._known = known

    def __missing__(self, name: str) -> Any:
        if name in self._known or hasattr(builtins, name):
            raise KeyError(name)
        return _Absent(name, (), {})


@functools.cache
def kinds_of(declared: Any) -> dict[str, Any]:
    """Return the annotated kinds of a function's parameters, or of a class's fields."""
    absent = None if isinstance(declared, type) else _Names(declared.__globals__)
    return get_type_hints(declared, localns=absent, include_extras=True)


_JUDGED = (bool, int, float, str)
"""Classes whose values are judged, too."""

# ---- what a kind takes, in words; the reason why a value does not fit ----


def _problem(name: str, value: object, kind: Any, extra: tuple[Any, ...] = ()) -> str:
    """Return why `value` is not of this kind; empty if it is."""
    origin = get_origin(kind)
    if origin is Annotated:
        kind, *more = get_args(kind)
        return _problem(name, value, kind, (*more, *extra))
    if origin in (Union, types.UnionType):
        problems = [_problem(name, value, choice, extra) for choice in get_args(kind)]
        if not all(problems):
            return ""
        inner = next((p for p in problems if p.startswith(f"{name}[")), None)
        return inner or _refusal(name, value, _takes(kind, extra))
    if not _fits(value, kind, origin, extra):
        hint = ""
        if isinstance(value, str):
            choices = next((mark.choices for mark in extra if isinstance(mark, OneOf)), ())
            hint = nearest(value[:100], choices or map(str, get_args(kind)))
        return _refusal(name, value, _takes(kind, extra)) + hint
    return _elements(name, value, origin, get_args(kind))


def _refusal(name: str, value: object, takes: str) -> str:
    return f"{name} is {shown(value)}; give {takes}"


def _elements(name: str, value: Any, origin: Any, kinds: tuple[Any, ...]) -> str:
    """Return why an element of a mapping, list or tuple does not fit."""
    pairs: Any = ()
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        pairs = ((f"{name}[{shown(key)}]", item, kinds[1]) for key, item in value.items())
        keys = ((f"a key of {name}", key, kinds[0]) for key in value)
        pairs = (*keys, *pairs)
    elif origin is tuple and kinds[-1] is not Ellipsis:
        if len(value) != len(kinds):
            return _refusal(name, value, f"a tuple of {len(kinds)} elements")
        pairs = ((f"{name}[{n}]", *pair) for n, pair in enumerate(zip(value, kinds, strict=True)))
    elif isinstance(origin, type) and issubclass(origin, collections.abc.Sequence):
        if kinds[0] not in _JUDGED and all(type(item) is kinds[0] for item in value):
            return ""  # the usual case of a long list
        pairs = ((f"{name}[{n}]", item, kinds[0]) for n, item in enumerate(value))
    return next(filter(None, (_problem(*pair) for pair in pairs)), "")


def _fits(value: Any, kind: Any, origin: Any, extra: tuple[Any, ...]) -> bool:
    """Return whether `value` itself, without its elements, is of this kind."""
    bounds = [mark for mark in extra if isinstance(mark, Between)]
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return True
    if kind is None or kind is types.NoneType:
        return value is None
    if origin is Literal:
        return any(isinstance(value, type(c)) and value == c for c in get_args(kind))
    if kind is int:
        return _is_whole(value) and all(b.has(index(value)) for b in bounds)
    if kind is float:
        return _is_finite(value) and all(b.has(value) for b in bounds)
    if kind is str:
        return isinstance(value, str) and _is_text(value, extra)
    wanted = origin or kind
    if issubclass(wanted, Path):
        return isinstance(value, wanted) and _is_text(str(value), extra)
    if wanted is collections.abc.Callable:
        return callable(value)
    if issubclass(wanted, collections.abc.Iterable) and isinstance(value, (str, bytes)):
        return wanted in (str, bytes) and isinstance(value, wanted)
    return isinstance(value, wanted)


def _is_whole(value: object) -> bool:
    # The class itself is asked first, because it is the usual one and the fast question.
    return type(value) is int or (
        isinstance(value, numbers.Integral) and not isinstance(value, bool)
    )


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _is_text(text: str, extra: tuple[Any, ...]) -> bool:
    controls = () if text.isprintable() else (c for c in text if c not in "\n\t")
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in controls):
        return False
    return all(mark.has(text) for mark in extra if isinstance(mark, (OneOf, _OfFiles)))


def _takes(kind: Any, extra: tuple[Any, ...]) -> str:
    """Return in words what a kind takes."""
    origin = get_origin(kind)
    if origin is Annotated:
        kind, *more = get_args(kind)
        return _takes(kind, (*more, *extra))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_takes(choice, extra) for choice in get_args(kind)))
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    bounds = "".join(str(mark) for mark in extra if isinstance(mark, Between))
    plain = {
        bool: "True or False",
        int: f"a whole number{bounds}",
        float: f"a finite number{bounds}",
        str: "text without control characters",
        bytes: "bytes",
        None: "None",
        types.NoneType: "None",
    }
    text = next((str(mark) for mark in extra if isinstance(mark, (OneOf, _OfFiles))), "")
    if text and kind not in (None, types.NoneType):
        return text
    if kind in plain:
        return plain[kind]
    wanted = origin or kind
    if issubclass(wanted, Path):
        return "a path"
    if wanted is collections.abc.Callable:
        return "a function"
    if issubclass(wanted, collections.abc.Mapping):
        return "a dictionary"
    if issubclass(wanted, tuple):
        return "a tuple"
    if issubclass(wanted, collections.abc.Iterable):
        return "a list"
    return f"an object of class {wanted.__name__}"
