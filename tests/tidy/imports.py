"""The rules of the Python package: its modules import each other in one direction, systems never.

Imports within functions count: they save start-up time, and must have the same direction. Imports
for type checkers alone do not count, except in ``pyrdma/__init__.py``, which loads the names listed
there at their first use.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from tests.tidy.tree import Source

PACKAGE = "pyrdma"
_LAYER = re.compile(r"^ {4}([\w.]+(?:, [\w.]+)*) {2,}\S", re.MULTILINE)


def import_cycles(files: Iterable[Source]) -> list[str]:
    """Modules of the package that import each other in a circle."""
    graph = imports(files)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " imports ".join(reversed(error.args[1]))
        return [f"{circle}: move the shared part into a module below them"]
    return []


def layer_complaints(files: Iterable[Source]) -> list[str]:
    """Imports that point up in the layers that the docstring of ``pyrdma/__init__.py`` lists."""
    files = list(files)
    graph = imports(files)
    (package,) = (file for file in files if file.path == f"{PACKAGE}/__init__.py")
    text = ast.get_docstring(ast.parse(package.text)) or ""
    layers = {
        f"{PACKAGE}.{name}": number
        for number, row in enumerate(_LAYER.findall(text))
        for name in row.split(", ")
    }
    if not layers:
        return [f"{package.path}: its docstring lists no layers"]
    gone = layers.keys() - graph.keys()
    complaints = [f"{name}: the layers list it, but it is gone" for name in gone]
    for module, imported in graph.items():
        own = _layer(module, layers)
        for target in imported:
            other = _layer(target, layers)
            if own is not None and other is not None and other < own:
                complaints.append(f"{module} imports {target}, which is in a higher layer")
    return sorted(complaints)


def system_complaints(files: Iterable[Source]) -> list[str]:
    """Systems that import another system. A system is a package below ``pyrdma/systems``."""
    graph = imports(files)
    prefix = f"{PACKAGE}.systems."

    def system(module: str) -> str:
        name, _, inner = module.removeprefix(prefix).partition(".")
        is_package = inner or any(other.startswith(f"{module}.") for other in graph)
        return name if module.startswith(prefix) and is_package else ""

    return sorted(
        f"{module} imports {target}: {system(module)} is one system and {system(target)} another; "
        f"move the shared part into {prefix.rstrip('.')}"
        for module, targets in graph.items()
        for target in targets
        if system(module) and system(target) and system(module) != system(target)
    )


def _layer(module: str, layers: Mapping[str, int]) -> int | None:
    """The layer of a module; if it has none, the layer of its package."""
    while module not in layers and "." in module:
        module = module.rpartition(".")[0]
    return layers.get(module)


def imports(files: Iterable[Source]) -> Mapping[str, set[str]]:
    """Modules of the package by name, each with the modules that it imports."""
    trees = {
        _name(file): ast.parse(file.text)
        for file in files
        if file.parts[0] == PACKAGE and file.path.endswith(".py")
    }
    packages = {name for name in trees if any(other.startswith(f"{name}.") for other in trees)}
    return {
        name: {found for found in _imported(tree, name, name in packages, trees) if found != name}
        for name, tree in trees.items()
    }


def _name(file: Source) -> str:
    words = file.path.removesuffix(".py").split("/")
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def _imported(tree: ast.AST, module: str, is_package: bool, known: Iterable[str]) -> Iterator[str]:
    """Known modules that a module imports; ``from a import b`` imports ``a.b`` or ``a``."""
    for node in _nodes(tree, for_types=module == PACKAGE):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            words = module.split(".")
            levels = node.level - 1 if is_package else node.level
            base = ".".join(words[: len(words) - levels]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                if inner in known:
                    yield inner
                elif source in known:
                    yield source


def _nodes(tree: ast.AST, *, for_types: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and not for_types:
            test = child.test
            if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
                continue
        yield child
        yield from _nodes(child, for_types=for_types)
