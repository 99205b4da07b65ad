"""The code that a measurement reaches. Its digest tells whether a stored point is still current.

A point depends on the native module, on its profile, on the function `Experiment.measure`, and on
whatever this function reaches: functions, classes and constants of the experiment's files by their
names in its bytecode, and modules of this package with the modules that they import. A figure, a
decider, a label or a comment is not reached unless `measure` uses it. The digest does not cover
other packages (their versions are in the provenance), files that `measure` reads, and names that it
computes; ``pyrdma run --fresh`` measures again after a change of those.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import Any

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
    *("__annotations__", "__static_attributes__"),
}


def digest(measure: Callable[..., Any] | None) -> str:
    """Return a digest of the code that `measure` reaches, equal in every process."""
    walk = _Walk(measure)
    root = walk.describe(measure)
    reached = {f"{_PACKAGE}.{name}" for name in _ALWAYS} | walk.modules
    lines = [f"{name} {text}" for name, text in sorted(walk.bodies.items())]
    lines += [f"{name} {_module_text(name)}" for name in sorted(_closure(frozenset(reached)))]
    text = "\n".join([_native(), root, *lines])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@cache
def _native() -> str:
    """Return a hash of the native module, wherever the installation keeps it."""
    spec = importlib.util.find_spec(f"{_PACKAGE}._core")
    if spec is None or spec.origin is None:
        return ""
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()


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
            return repr(value) + _library(value)
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
        name = f"{value.__module__}.{value.__qualname__}"
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
        members = sorted((n, v) for n, v in vars(kind).items() if n not in _OF_CLASSES)
        inside = (f"{name}={self.describe(member)}" for name, member in members)
        return f"class {self.describe(list(kind.__bases__))} {' '.join(inside)}"

    def _function(self, function: Any) -> str:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.describe(cell.cell_contents))
            except ValueError:  # not assigned yet
                cells.append("empty")
        names = set(_names(function.__code__))
        known = {n: function.__globals__[n] for n in names if n in function.__globals__}
        modules = (_PACKAGE, *_EXPERIMENTS)
        known |= {n: _import(n) for n in names - known.keys() if f"{n}.".startswith(modules)}
        used = [f"{n}={self._used(known[n], names)}" for n in sorted(known)]
        return " ".join(
            [
                _code(function.__code__, function.__doc__),
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


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


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
    """Describe the code of a module of this package, without docstrings."""
    path = _file(name)
    assert path is not None
    code = compile(path.read_bytes(), name, "exec", dont_inherit=True, optimize=2)
    return hashlib.sha256(_code(code).encode()).hexdigest()


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
    for node in _nodes(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(words[: len(words) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            found += [source, *(f"{source}.{alias.name}" for alias in node.names)]
    return tuple(module for module in found if _is_ours(module))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those for type checkers alone."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _nodes(child)
