"""The code that a measurement reaches. Its digest tells whether a stored point is still current.

A point depends on the native sources, on its profile, on the function `Experiment.measure`, and on
whatever this function reaches: functions, classes and constants of the experiment's files by their
names in its bytecode, and modules of this package with the modules that they import. A figure, a
decider, a label or a comment is not reached unless `measure` uses it. The digest does not cover
other packages (their versions are in the provenance), files that `measure` reads, and names that it
computes; ``pyrdma run --fresh`` measures again after a change of those.

Equal sources have equal digests in every version of Python and in every build with equal flags. So
a cluster's hosts can compare digests. A function without a source, as ``exec`` makes it, counts by
its bytecode, which differs between versions.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import inspect
import reprlib
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from ._native import native
from ._syntax import codes, function_text, text
from .errors import Unavailable

__all__ = ["digest"]

_PACKAGE = __package__
_FOLDER = Path(__file__).parent
_ALWAYS = ("cluster", "experiment", "result")
"""Modules that every measurement reaches, through its `Point` and the rows that it returns."""

_EXPERIMENTS = ("experiments.", "pyrdma_experiment_")
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OF_CLASSES = {
    *("__dict__", "__doc__", "__module__", "__weakref__", "__firstlineno__"),
    *("__annotations__", "__static_attributes__", "__dataclass_params__", "__replace__"),
}
_OF_DATACLASSES = ("<string>", dataclasses.__file__, reprlib.__file__)
"""The files of the functions that `dataclasses` writes."""


def digest(measure: Callable[..., Any] | None) -> str:
    """Return a digest of the code that `measure` reaches, equal in every process."""
    walk = _Walk(measure)
    root = walk.describe(measure)
    reached = {f"{_PACKAGE}.{name}" for name in _ALWAYS} | walk.modules
    lines = [f"{name} {text}" for name, text in sorted(walk.bodies.items())]
    lines += [f"{name} {_module_text(name)}" for name in sorted(_closure(frozenset(reached)))]
    text = "\n".join([_native(), root, *lines])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _native() -> str:
    """Return the digest of the native sources; an empty text if the module cannot be loaded."""
    try:
        core: Any = native()
    except Unavailable:
        return ""
    return str(core.source_digest)


class _Walk:
    """Describes objects as text; notes the code of functions and classes that it comes across."""

    def __init__(self, measure: object) -> None:
        self.bodies: dict[str, str] = {}
        self.modules: set[str] = set()
        self._open: set[int] = set()
        self._named: dict[int, tuple[str, object]] = {}  # keeps the objects, so ids stay theirs
        code = getattr(measure, "__code__", None)
        self._tree = Path(code.co_filename).resolve().parent.parent if code else None

    def describe(self, value: Any) -> str:
        if id(value) in self._open:
            return "recursion"
        self._open.add(id(value))
        try:
            return self._describe(value)
        finally:
            self._open.discard(id(value))

    def _describe(self, value: Any) -> str:
        if isinstance(value, str):
            return ascii(value) + _library(value)
        if value is None or isinstance(value, (bool, int, float, complex, bytes)):
            return repr(value)
        if isinstance(value, Enum):
            return f"{self.describe(type(value))}.{value.name}"
        if isinstance(value, PurePath):
            return f"path {str(self._in_tree(value))!r}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}({', '.join(map(self.describe, value))})"
        if isinstance(value, types.MappingProxyType):
            return self.describe(dict(value))
        if isinstance(value, (set, frozenset)):
            return f"set({', '.join(sorted(map(self.describe, value)))})"
        if isinstance(value, dict):
            pairs = (f"{self.describe(k)}: {self.describe(v)}" for k, v in value.items())
            return f"dict({', '.join(pairs)})"
        if isinstance(value, functools.partial):
            return f"partial{self.describe([value.func, value.args, value.keywords])}"
        if isinstance(value, (staticmethod, classmethod)):
            return self.describe(value.__func__)
        if isinstance(value, property):
            return self.describe([value.fget, value.fset])
        if isinstance(value, types.MethodType):
            return self.describe([value.__func__, value.__self__])
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, types.GenericAlias):  # a type as well, but only in Python 3.10
            return self.describe([value.__origin__, value.__args__])
        if isinstance(value, (types.FunctionType, type)):
            return self._definition(value)
        if hasattr(value, "__wrapped__"):  # such as a cached function
            return f"{self.describe(type(value))}({self.describe(value.__wrapped__)})"
        return self._object(value)

    def _in_tree(self, path: PurePath) -> PurePath:
        """Return a path of the experiments' tree relative to it, since the tree may be moved."""
        if self._tree is not None and path.is_absolute() and path.is_relative_to(self._tree):
            return path.relative_to(self._tree)
        return path

    def _module(self, module: types.ModuleType) -> str:
        if _is_ours(module.__name__):
            self.modules.add(module.__name__)
        return module.__name__

    def _definition(self, value: types.FunctionType | type) -> str:
        # Versions differ in what they take from a module's part in C, as `_collections`.
        name = f"{value.__module__.lstrip('_')}.{value.__qualname__}"
        if _is_ours(value.__module__):
            self.modules.add(value.__module__)
            return name
        if not _is_users(value):
            return name
        if id(value) not in self._named:
            # Two closures, or a function and its decorated form, may have the same name.
            label = f"{name}#{len(self._named)}"
            self._named[id(value)] = label, value
            is_class = isinstance(value, type)
            self.bodies[label] = self._class(value) if is_class else self._function(value)
        return self._named[id(value)][0]

    def _class(self, kind: Any) -> str:
        members = {n: v for n, v in vars(kind).items() if n not in _OF_CLASSES}
        if issubclass(kind, Enum):
            # The other attributes are what Enum makes of its members, in each version differently.
            own = {n for n, v in members.items() if getattr(v, "__module__", "") == kind.__module__}
            members = {n: v for n, v in members.items() if n in own or not n.startswith("_")}
            members |= {name: member.value for name, member in kind.__members__.items()}
        if "__dataclass_fields__" in members:
            members = {n: "derived" if _is_derived(v) else v for n, v in members.items()}
        inside = (f"{name}={self.describe(members[name])}" for name in sorted(members))
        return f"class {self.describe(list(kind.__bases__))} {' '.join(inside)}"

    def _function(self, function: Any) -> str:
        code: types.CodeType = function.__code__
        cells = []
        for name, cell in sorted(zip(code.co_freevars, function.__closure__ or (), strict=True)):
            try:
                cells.append(f"{name}={self.describe(cell.cell_contents)}")
            except ValueError:  # not assigned yet
                cells.append(f"{name} is empty")
        names = {name for inner in codes(code) for name in inner.co_names}
        known = {n: function.__globals__[n] for n in names if n in function.__globals__}
        modules = (_PACKAGE, *_EXPERIMENTS)
        known |= {n: _import(n) for n in names - known.keys() if f"{n}.".startswith(modules)}
        used = [f"{n}={self._used(known[n], names)}" for n in sorted(known)]
        return " ".join(
            [
                function_text(code) or _code(code, function.__doc__),
                self.describe([function.__defaults__, function.__kwdefaults__]),
                *cells,
                *used,
            ]
        )

    def _used(self, value: Any, names: set[str]) -> str:
        """Describe a global; of a module, also the attributes that the function may use."""
        text = self.describe(value)
        if not isinstance(value, types.ModuleType):
            return text
        if not (_is_ours(value.__name__) or _is_users(value)):
            return text
        inner = names - {value.__name__.rpartition(".")[2]}
        found = {n: _attribute(value, n) for n in sorted(inner)}
        attributes = [f"{n}={self._used(v, inner)}" for n, v in found.items() if v is not None]
        return f"{text}({' '.join(attributes)})"

    def _object(self, value: Any) -> str:
        kind = self.describe(type(value))
        if kind == f"{_PACKAGE}.experiment.Experiment":
            # Its figure and its deciders are no part of the measurement.
            return f"{kind}({self.describe(value.measure)})"
        try:
            parts = value.__reduce_ex__(2)  # as for a copy: the class, its arguments, the state
        except Exception:  # such as a lock: it has no value
            return kind
        if isinstance(parts, str):
            return f"{kind} {parts}"
        # Iterators over the elements of a list and of a dict come last.
        return (
            f"{kind}{self.describe([p if n < 3 else list(p or ()) for n, p in enumerate(parts)])}"
        )


def _attribute(module: types.ModuleType, name: str) -> Any:
    part = f"{module.__name__}.{name}"
    if _is_ours(part) and name not in getattr(module, "__all__", ()) and _file(part) is not None:
        return types.ModuleType(part)  # it counts as a whole, whether it is loaded by now or not
    found = getattr(module, name, None)
    if found is None and hasattr(module, "__path__") and not _is_ours(module.__name__):
        return _import(f"{module.__name__}.{name}")
    return found


def _is_ours(module: str) -> bool:
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _is_users(value: Any) -> bool:
    """Return whether a function, class or module belongs to an experiment, not to a library."""
    name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
    if name.startswith(_EXPERIMENTS) or name == "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not file.startswith(_LIBRARIES)


def _is_derived(member: object) -> bool:
    """Return whether `dataclasses` has made a function, from the fields of its class."""
    code = getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None
    return code is not None and code.co_filename in _OF_DATACLASSES


def _import(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _library(text: str) -> str:
    """Return a hash of the shared library that a text such as ``library.so:name`` names."""
    path, separator, _ = text.partition(".so:")
    file = Path(f"{path}.so")
    if not separator or not file.is_file():
        return ""
    return " " + hashlib.sha256(file.read_bytes()).hexdigest()


def _code(code: types.CodeType, doc: str | None = None) -> str:
    """Describe bytecode without its lines, its file and the docstring `doc`."""
    if doc is None:
        doc = _docstring(code)
    constants = [_constant(None if c == doc else c) for c in code.co_consts]
    table = getattr(code, "co_exceptiontable", b"")
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return f"{code.co_code.hex()} {table.hex()} {names} {counts} [{' '.join(constants)}]"


def _docstring(code: types.CodeType) -> str | None:
    """Return the docstring of a function's code: its first constant, if the code has one."""
    marked = sys.version_info < (3, 13) or code.co_flags & 0x4000000  # CO_HAS_DOCSTRING
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    first = code.co_consts[0] if code.co_consts else None
    return first if marked and is_function and isinstance(first, str) else None


def _constant(value: object) -> str:
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"  # its order differs per process
    return repr(value)


@cache
def _module_text(name: str) -> str:
    """Return a hash of the code of a module of this package, without docstrings."""
    return hashlib.sha256(text(_tree(name)).encode()).hexdigest()


@cache
def _tree(name: str) -> ast.Module:
    path = _file(name)
    assert path is not None
    return ast.parse(path.read_bytes())


def _file(name: str) -> Path | None:
    """Return the file of a module of this package; None if there is no such module."""
    base = _FOLDER.joinpath(*name.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def _closure(names: frozenset[str]) -> frozenset[str]:
    """Return these modules and all modules of the package that they import."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        # The package's own file loads its parts on demand, so it has no code of a measurement.
        if name == _PACKAGE or name in found or _file(name) is None:
            continue
        found.add(name)
        waiting |= set(_imported(name))
    return frozenset(found)


@cache
def _imported(name: str) -> tuple[str, ...]:
    path = _file(name)
    assert path is not None
    words = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found = [".".join(words)]
    for node in _statements(_tree(name)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(words[: len(words) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            found += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    return tuple(module for module in found if _is_ours(module))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements but those for type checkers alone."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _statements(child)
