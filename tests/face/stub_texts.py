"""The docstrings of the stubs are those of the native module, which is their one source.

``python -m tests.face.stub_texts`` writes them into the stubs.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyrdma
from pyrdma import _core

STUBS = sorted((Path(pyrdma.__file__).parent / "_core").glob("*.pyi"))

Definition = ast.ClassDef | ast.FunctionDef


def text_of(described: Any) -> str:
    """Return a docstring without the signature that pybind11 writes before it."""
    described = getattr(described, "__func__", described)  # of a static method
    text = inspect.cleandoc(getattr(described, "__doc__", None) or "")
    return re.sub(r"\A\w+\(.*\) -> .*\n*", "", text)


def described(stub: Path) -> Iterator[tuple[str, Definition, str]]:
    """Yield name, definition and native docstring of all that a stub defines."""
    return _described(_tree(stub), _native(stub))


def _tree(stub: Path) -> ast.Module:
    return ast.parse(stub.read_text(encoding="utf-8"))


def _native(stub: Path) -> Any:
    return _core if stub.stem == "__init__" else getattr(_core, stub.stem)


def _described(
    tree: ast.Module | ast.ClassDef, native: Any
) -> Iterator[tuple[str, Definition, str]]:
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("__"):
            member = vars(native)[node.name]
            yield f"{native.__name__}.{node.name}", node, text_of(member)
            if isinstance(node, ast.ClassDef):
                yield from _described(node, member)


def with_texts(stub: Path) -> str:
    """Return the source of a stub with the native docstrings."""
    tree = _tree(stub)
    for _, node, text in _described(tree, _native(stub)):
        indent = "\n" + " " * (node.col_offset + 4)
        lines = re.sub(r"\n(?=.)", indent, text) + (indent if "\n" in text else "")
        kept = [n for n in node.body if not (isinstance(n, ast.Expr) and _is_text_or_dots(n))]
        node.body = [ast.Expr(ast.Constant(lines)), *kept]
    return _ruff(
        ["format"], stub, _ruff(["check", "--fix", "--select", "I"], stub, ast.unparse(tree))
    )


def _is_text_or_dots(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, (str, type(...)))


def _ruff(command: list[str], stub: Path, source: str) -> str:
    whole = ["ruff", *command, "--quiet", "--stdin-filename", str(stub), "-"]
    return subprocess.run(whole, input=source, text=True, capture_output=True, check=True).stdout


if __name__ == "__main__":
    for each in STUBS:
        each.write_text(with_texts(each), encoding="utf-8")
