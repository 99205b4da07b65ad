"""The package's modules import each other in one direction; small packages test the rule."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.tidy.imports import import_cycles, imports, layer_complaints, system_complaints
from tests.tidy.tree import Source, sources


def test_the_package_has_no_import_cycle() -> None:
    tree = sources()
    assert "pyrdma.errors" in imports(tree)["pyrdma.cluster"]
    assert not import_cycles(tree), import_cycles(tree)


def package(texts: Mapping[str, str]) -> list[Source]:
    every = {"__init__": "from .errors import Error\n", "errors": "", **texts}
    return [Source(f"pyrdma/{name}.py", text) for name, text in every.items()]


@pytest.mark.parametrize(
    "texts",
    [
        {"a": "from . import b\n", "b": "from .a import x\n"},
        {"a": "from .b import x\n", "b": "from pyrdma import a\n"},
        {"a": "def f():\n    from .b import x\n", "b": "import pyrdma.a\n"},
        {"a": "from .b import x\n", "b": "from .c import x\n", "c": "from .a import x\n"},
        {"a": "from .sub import b\n", "sub/__init__": "", "sub/b": "from ..a import x\n"},
        {"a": "import pyrdma\n", "errors": "from .a import x\n"},
    ],
)
def test_a_circle(texts: dict[str, str]) -> None:
    (complaint,) = import_cycles(package(texts))
    assert "pyrdma.a" in complaint
    assert " imports " in complaint


@pytest.mark.parametrize(
    "texts",
    [
        {"a": "from . import b\n", "b": "from .errors import Error\n"},
        {
            "a": "from .b import x\n",
            "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .a import x\n",
        },
        {"a": "import ast.b\nfrom b import x\n", "b": "from .a import x\n"},
    ],
)
def test_no_circle(texts: dict[str, str]) -> None:
    assert import_cycles(package(texts)) == []


LAYERS = '''"""A package.

Layers:

    tool, sub        upper
    low, sub.deep    lower
"""
'''


def test_the_package_keeps_the_layers_that_its_docstring_lists() -> None:
    assert layer_complaints(sources()) == []


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({"low": "from .sub.a import x\n"}, "pyrdma.low imports pyrdma.sub.a"),
        ({"low": "", "tool": "from .low import x\n"}, ""),
        ({"low": "from .errors import x\n"}, ""),
        ({"low": "from .sub.deep import x\n", "sub/deep": ""}, ""),
        ({"sub/deep": "from .a import x\n"}, "pyrdma.sub.deep imports pyrdma.sub.a"),
    ],
)
def test_layers(texts: dict[str, str], complaint: str) -> None:
    modules = ("low", "tool", "sub/__init__", "sub/a", "sub/deep")
    every = {"__init__": LAYERS, **dict.fromkeys(modules, ""), **texts}
    found = layer_complaints(package(every))
    assert len(found) == bool(complaint)
    assert complaint in "".join(found)


def test_a_docstring_without_layers() -> None:
    assert layer_complaints(package({})) == ["pyrdma/__init__.py: its docstring lists no layers"]


def test_a_layer_names_a_module_that_is_gone() -> None:
    found = layer_complaints(package({"__init__": LAYERS, "tool": "", "low": "", "sub/deep": ""}))
    assert found == ["pyrdma.sub: the layers list it, but it is gone"]


def test_no_system_of_the_package_imports_another() -> None:
    assert system_complaints(sources()) == []


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({"raft/a": "from ..paxos import b\n"}, "pyrdma.systems.raft.a imports"),
        (
            {"raft/__init__": "from pyrdma.systems.paxos.b import x\n"},
            "pyrdma.systems.raft imports",
        ),
        ({"raft/a": "def f():\n    from .. import paxos\n"}, "imports pyrdma.systems.paxos"),
        ({"raft/a": "from .c import x\nfrom ..operation import y\n", "raft/c": ""}, ""),
        ({"__init__": "from . import raft\n"}, ""),
    ],
)
def test_systems(texts: dict[str, str], complaint: str) -> None:
    modules = ("__init__", "operation", "raft/__init__", "raft/a", "paxos/__init__", "paxos/b")
    every = {
        f"systems/{name}": text for name, text in {**dict.fromkeys(modules, ""), **texts}.items()
    }
    found = system_complaints(package(every))
    assert len(found) == bool(complaint)
    assert complaint in "".join(found)
