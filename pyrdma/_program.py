"""The functions that nodes run; see `pyrdma.program`."""

from __future__ import annotations

import functools
import inspect
import runpy
import sys
import types
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from . import _shapes
from ._native import native
from ._sent import SentSources
from .arguments import shown
from .errors import InvalidArgument

__all__ = [
    "GRACE_NS",
    "Awaited",
    "Program",
    "address_of",
    "by_node",
    "checked_model",
    "function_at",
    "refuse_import",
]

Program = Callable[[Any], Coroutine[Any, Any, Any]]
"""An ``async def`` function, whose argument is the node."""

GRACE_NS = {"virtual": 1_000_000, "real": 100_000_000}
"""Time for which the last nodes wait for requests until the program ends."""


class Awaited:
    """The methods of an object as operations of a node; ``Node.awaits`` makes it."""

    def __init__(self, node: Any, of: object) -> None:
        kind = type(of)
        methods = [name for name in dir(kind) if not name.startswith("_")]
        if kind.__module__ == "builtins" or not any(callable(getattr(kind, m)) for m in methods):
            raise InvalidArgument(
                f"object is {shown(of)}; give a channel, or another object whose methods wait"
            )
        self._node = node
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            return found
        given: dict[str, Any] = {}
        with suppress(ValueError):  # a native method has no signature
            parameter = inspect.signature(found).parameters.get("node")
            if parameter is not None and parameter.kind is parameter.KEYWORD_ONLY:
                given["node"] = self._node.id
        method = partial(self._node.do, found, **given)
        vars(self)[name] = method  # the next look-up finds it here
        return method

    def __repr__(self) -> str:
        return f"<{self._of!r}, awaited by node {self._node.id}>"


_importing: list[str] = []
"""The file of a node program that this node process imports now."""


def refuse_import() -> None:
    """Refuse to make a cluster while a node process imports a program: it would start processes.

    Raises
    ------
    InvalidArgument
        A node process imports the file, whose top level makes a cluster.
    """
    if _importing:
        raise InvalidArgument(
            f"{_importing[-1]} makes a cluster when a node process imports it; put that below "
            '`if __name__ == "__main__":`'
        )


def checked_model(model: str) -> str:
    """Return the name of a model of histories.

    Raises
    ------
    InvalidArgument
        There is no such model.
    """
    core: Any = native()
    known = core.check.model_names()
    if model not in known:
        raise InvalidArgument(f"model is {shown(model)}; give one of {', '.join(known)}")
    return model


def address_of(function: Program) -> dict[str, Any]:
    """Return file, name and arguments of a function, by which a node process calls it.

    Raises
    ------
    InvalidArgument
        The function has no name at the top level of a file, or an argument is not plain.
    """
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}
    wrapped: object = function
    if isinstance(wrapped, functools.partial):
        function, arguments, keywords = wrapped.func, wrapped.args, wrapped.keywords
    file = inspect.getsourcefile(function) if inspect.isfunction(function) else None
    name = getattr(function, "__qualname__", "")
    if file is None or not Path(file).is_file() or not name.isidentifier():
        raise InvalidArgument(
            f"functions: {shown(function)} has no file and name by which node processes could find "
            "it; define it at the top level of a .py file, or use Cluster.local(..., mode='thread')"
        )
    for key, value in (*enumerate(arguments), *keywords.items()):
        if not _shapes.is_plain(value):
            raise InvalidArgument(
                f"functions: {name} has {shown(value)} as argument {key}; node processes take "
                "None, bools, texts, finite numbers of 64 bits, and lists and dicts of these"
            )
    return {
        "file": str(Path(file).resolve()),
        "name": name,
        "arguments": list(arguments),
        "keywords": dict(keywords),
        "experiments": _folder_of_experiments(),
        "sent": False,
    }


def _folder_of_experiments() -> str:
    """Return the folder of the package in which experiments find helpers; "" if there is none.

    A user's own package of this name has a file.
    """
    package = sys.modules.get("experiments")
    folders = getattr(package, "__path__", ()) if getattr(package, "__file__", None) is None else ()
    return next(iter(folders), "")


def function_at(address: Mapping[str, Any], sent: SentSources) -> Program:
    """Return the function that `address_of` has described; runs its file, as sent or as it is here.

    Raises
    ------
    InvalidArgument
        The file has no such function, or was not sent as it should.
    """
    file, name = address["file"], address["name"]
    _importing.append(file)
    try:
        names = sent.run(file) if address["sent"] else _run_own(file, address["experiments"])
    finally:
        _importing.pop()
    found = names.get(name)
    if not inspect.iscoroutinefunction(found):
        raise InvalidArgument(
            f"functions: {file} has no `async def {name}` when it is imported; define it outside "
            'of `if __name__ == "__main__":`'
        )
    return functools.partial(found, *address["arguments"], **address["keywords"])


def _run_own(file: str, experiments: str) -> Mapping[str, Any]:
    """Run a file of this machine and return its names.

    An experiment imports its helpers from the package ``experiments``, which is at a folder.
    """
    folder = str(Path(file).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as for a script
    if experiments:
        package = sys.modules.setdefault("experiments", types.ModuleType("experiments"))
        package.__path__ = [experiments]
    return runpy.run_path(file, run_name="pyrdma_program")


def by_node(functions: Program | Mapping[Any, Program], nodes: int) -> dict[int, Program]:
    """Return the function of each node that has one.

    Parameters
    ----------
    functions
        One function for all nodes, or functions by node: a number, a tuple or range of numbers, or
        ``"rest"`` for all others.

    Raises
    ------
    InvalidArgument
        A node does not exist or has two functions, or a function is not ``async def``.
    """
    given = functions if isinstance(functions, Mapping) else {"rest": functions}
    found: dict[int, Program] = {}
    for key, function in given.items():
        if not inspect.iscoroutinefunction(getattr(function, "func", function)):
            raise InvalidArgument(
                f"functions: {shown(key)} has {shown(function)}; give an `async def` function with "
                "one parameter, the node"
            )
        if key == "rest":
            continue
        for node in key if isinstance(key, (tuple, range)) else (key,):
            if not isinstance(node, int) or isinstance(node, bool) or not 0 <= node < nodes:
                raise InvalidArgument(
                    f"functions: the key is {shown(node)}; give a node from 0 to {nodes - 1}, a "
                    "tuple or range of them, or 'rest'"
                )
            if node in found:
                raise InvalidArgument(f"functions: node {node} has two programs; give it one")
            found[node] = function
    if "rest" in given:
        for node in range(nodes):
            found.setdefault(node, given["rest"])
    if not found:
        raise InvalidArgument(
            "functions: no node has a program; give a function, or functions by node"
        )
    return found
