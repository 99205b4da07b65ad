"""Every public name has a docstring, and the stubs have those of the native module."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyrdma
from tests.face import public, stub_texts


def names() -> Iterator[tuple[str, Any]]:
    """Yield each public name of the package, and the public members of its classes."""
    for module in [pyrdma, *public.modules()]:
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isroutine(found) or isinstance(found, (type, ModuleType)):
                yield f"{module.__name__}.{name}", found
            if isinstance(found, type):
                yield from _members(f"{module.__name__}.{name}", found)


def _members(name: str, found: type) -> Iterator[tuple[str, Any]]:
    for owner in found.__mro__:
        if not owner.__module__.startswith("pyrdma"):
            continue
        for member, raw in vars(owner).items():
            is_code = callable(raw) or hasattr(raw, "__get__")
            if not member.startswith("_") and is_code:
                yield f"{name}.{member}", getattr(found, member) if inspect.isroutine(raw) else raw


def test_every_public_name_has_a_docstring() -> None:
    found = dict(names())
    native = "pyrdma.verbs.QueuePair.post"
    assert native in found
    assert [n for n, each in found.items() if not stub_texts.text_of(each)] == []


def test_every_public_value_has_a_docstring_below_it() -> None:
    missing = []
    for module in public.modules():
        source = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
        below = {_assigned(a) for a, b in pairwise(source) if _is_text(b)}
        missing += [
            f"{module.__name__}.{name}"
            for name in {_assigned(node) for node in source} & set(module.__all__) - below
        ]
    assert missing == []


def _assigned(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else ""


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


@pytest.mark.parametrize("stub", stub_texts.STUBS, ids=lambda s: s.stem)
def test_a_stub_has_the_native_docstrings(stub: Path) -> None:
    assert [n for n, _, text in stub_texts.described(stub) if not text] == []
    assert stub.read_text(encoding="utf-8") == stub_texts.with_texts(stub), (
        "write them: python -m tests.face.stub_texts"
    )
