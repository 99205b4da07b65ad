"""The sources of node programs, which a driver sends to the nodes of hosts.

A host has pyrdma and Python's packages, and no copy of the file of a program. So the driver sends
the text of this file and of the modules that it imports, apart from installed ones. A node keeps
the texts in its memory and imports them from there, under the driver's file names.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from ._frames import MOST_PIECE, ProtocolError
from .errors import InvalidArgument

__all__ = ["MOST", "MOST_MODULES", "SentSources", "sources_of"]

MOST, MOST_MODULES = 1 << 20, 256
"""Most characters of all sources of a program, and their largest number."""

_INSTALLED = {"site-packages", "dist-packages"}
_PYTHON = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def _module_of(file: str) -> str:
    """Return the name under which a node imports the file of a function."""
    return f"pyrdma_program_{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"


# --- the driver -----------------------------------------------------------------------------------


def sources_of(file: str) -> list[dict[str, Any]]:
    """Return the messages that bring a file, and the user's modules that it imports, to a node.

    Raises
    ------
    InvalidArgument
        A file cannot be read or is no Python, or all have too many characters.
    """
    waiting: list[tuple[str, Path | None, bool]] = [(_module_of(file), Path(file), False)]
    messages: dict[str, list[dict[str, Any]]] = {}
    total = 0
    while waiting:
        module, path, package = waiting.pop()
        if module in messages:
            continue
        try:
            text = decode_source(path.read_bytes()) if path is not None else ""
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise InvalidArgument(f"functions: {path} cannot be sent: {error}") from None
        total += len(text)
        if total > MOST or len(messages) == MOST_MODULES:
            raise InvalidArgument(
                f"functions: with {path} a program has {len(messages) + 1} own files, of {total} "
                f"characters; hosts take {MOST_MODULES}, of {MOST}: import fewer modules, or "
                "install them here and on the hosts, not as editable"
            )
        about = {"kind": "source", "module": module, "file": str(path or ""), "package": package}
        pieces = [text[at : at + MOST_PIECE] for at in range(0, len(text), MOST_PIECE)] or [""]
        messages[module] = [{**about, "piece": piece, "first": False} for piece in pieces]
        own = module if package else module.rpartition(".")[0]
        for name in _imports(tree, own):
            waiting += _found(name)
    every = [message for pieces in messages.values() for message in pieces]
    every[0]["first"] = True
    return every


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the names that may be modules in all import statements, also those in functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            words = package.split(".")
            base = ".".join(words[: len(words) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _found(name: str) -> Iterator[tuple[str, Path | None, bool]]:
    """Yield name, file and whether it is a package, of a user's module and of those above it."""
    within: list[str] | None = None  # folders of the package above; first those of sys.path
    words = name.split(".")
    for count in range(1, len(words) + 1):
        module = ".".join(words[:count])
        loaded = sys.modules.get(module)
        spec = None if loaded is not None else PathFinder.find_spec(module, within)
        if loaded is None and spec is None:  # a name in a module, or a module that is not here
            return
        file = getattr(loaded, "__file__", None) or (spec.origin if spec is not None else None)
        folders = getattr(loaded or spec, "__path__", None)
        if folders is None and spec is not None:
            folders = spec.submodule_search_locations
        within = None if folders is None else list(folders)
        place = file or (within or [""])[0]
        if not _is_users(words[0], place) or (file is not None and not file.endswith(".py")):
            return
        yield module, None if file is None else Path(file), within is not None
        if within is None:
            return


def _is_users(package: str, place: str) -> bool:
    """Return whether a file or folder is neither pyrdma's, nor Python's, nor installed."""
    if package in ("pyrdma", "experiments") or not place:
        return package == "experiments"
    path, real = Path(place), Path(place).resolve()
    return not _INSTALLED & {*path.parts, *real.parts} and not any(
        map(real.is_relative_to, _PYTHON)
    )


# --- the node -------------------------------------------------------------------------------------


class SentSources(ExecutionLoader, MetaPathFinder):
    """The sources that a node has got: modules that it imports before others of their names."""

    def __init__(self) -> None:
        self._coming: dict[str, Mapping[str, Any]] = {}
        self._modules: dict[str, Mapping[str, Any]] = {}

    def take(self, message: Mapping[str, Any]) -> None:
        """Keep a piece of a source for the next program.

        Raises
        ------
        ProtocolError
            The sources are too long, or pieces of one module differ in file or kind.
        """
        if message["first"]:  # what came before was for a program that has not begun
            self._coming = {}
        name = message["module"]
        before = self._coming.get(name, {**message, "piece": ""})
        if any(before[field] != message[field] for field in ("file", "package")):
            raise ProtocolError(f"the pieces of the module {name!r} do not belong together")
        self._coming[name] = {**message, "piece": before["piece"] + message["piece"]}
        sizes = [len(source["piece"]) for source in self._coming.values()]
        if sum(sizes) > MOST or len(sizes) > MOST_MODULES:
            raise ProtocolError(f"sources are {len(sizes)}, of {sum(sizes)} characters")

    def begin(self) -> None:
        """Let the sources that have come since the last program take the place of the earlier.

        Raises
        ------
        InvalidArgument
            A module has the name of another one that is loaded here.
        """
        for name in self._modules:
            sys.modules.pop(name, None)
        self._modules, coming, self._coming = {}, self._coming, {}
        taken = [name for name in coming if name in sys.modules or name.split(".")[0] == "pyrdma"]
        if taken:
            raise InvalidArgument(
                f"functions: a program imports a module {taken[0]!r} of its own, and the node has "
                "loaded another one of this name; rename the module"
            )
        self._modules = coming
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        importlib.invalidate_caches()

    def run(self, file: str) -> Mapping[str, Any]:
        """Run a file that was sent, and return its names.

        Raises
        ------
        InvalidArgument
            The file was not sent.
        """
        name = _module_of(file)
        if name not in self._modules:
            raise InvalidArgument(
                f"functions: the node has not got {file}: it came back while the files were sent; "
                "run the program again"
            )
        return vars(importlib.import_module(name))

    # Python's import calls these.

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how to load a module that was sent."""
        del path, target
        if fullname not in self._modules:
            return None
        # A package has no folder here, so that only modules that were sent are found in it.
        spec = ModuleSpec(
            fullname, self, origin=self.get_filename(fullname), is_package=self.is_package(fullname)
        )
        spec.has_location = bool(spec.origin)
        return spec

    def is_package(self, fullname: str) -> bool:
        """Return whether a module is a package."""
        return bool(self._modules[fullname]["package"])

    def get_filename(self, fullname: str) -> str:
        """Return the file of a module at the driver."""
        return str(self._modules[fullname]["file"])

    def get_source(self, fullname: str) -> str:
        """Return the text of a module."""
        return str(self._modules[fullname]["piece"])
