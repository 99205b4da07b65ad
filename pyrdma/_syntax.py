"""Python code as text that is equal in every version of Python.

The text is that of the syntax tree. It has no comments, docstrings, lines, or spelling, such as
quotes and parentheses. Bytecode would differ between versions.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator, Sequence
from functools import lru_cache

__all__ = ["codes", "function_text", "text"]

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SPELLING = {"ctx", "kind", "type_comment", "type_ignores"}
"""Fields of nodes that follow from the place of a node, or that nothing depends on."""


def text(tree: ast.AST) -> str:
    """Return the text of a syntax tree."""
    parts: list[str] = []
    left: list[ast.AST | str] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        parts.append(f"{type(node).__name__}(")
        left.append(")")
        for name in reversed(node._fields):
            value = getattr(node, name, None)
            # Newer versions have more fields; code that all versions know leaves them empty.
            if name in _SPELLING or value is None or value == []:
                continue
            if isinstance(value, list):
                items = value[_docstrings(node) :] if name == "body" else value
                if isinstance(node, ast.JoinedStr):  # Python 3.12 has empty texts in it
                    items = [item for item in items if getattr(item, "value", None) != ""]
                left += ["]", *map(_part, reversed(items)), f"{name}["]
            else:
                left += [_part(value), f"{name}="]
    return " ".join(parts)


def _part(value: object) -> ast.AST | str:
    # Versions differ in the characters that `repr` prints as they are.
    return value if isinstance(value, ast.AST) else ascii(value)


def _docstrings(node: ast.AST) -> int:
    """Return the number of docstrings at the beginning of a node's body."""
    first = node.body[0] if isinstance(node, _DOCUMENTED) and node.body else None
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return int(is_text and isinstance(first.value.value, str))  # type: ignore[union-attr]


def function_text(code: types.CodeType) -> str | None:
    """Return the text of a function's parameters and body; None if its source is not here.

    A source that has been edited since it was loaded is not the function's source. Functions of one
    name that begin in one line, which only lambdas do, have their texts together.
    """
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    nodes = _functions(source).get(code, ())
    return " | ".join(map(_inside, nodes)) or None


@lru_cache(maxsize=64)
def _functions(source: str) -> dict[types.CodeType, list[Function]]:
    """Return the syntax trees of each function of a source, by its code."""
    try:
        tree = ast.parse(source)
        module = compile(tree, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    nodes: dict[tuple[str, int], list[Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            nodes.setdefault(_place(node), []).append(node)
    found = {}
    for code in codes(module):
        place = code.co_name, code.co_firstlineno
        if place in nodes:
            found[code] = nodes[place]
    return found


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def _place(node: Function) -> tuple[str, int]:
    """Return name and first line of a function, as its code has them."""
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, min(part.lineno for part in (node, *node.decorator_list))


def _inside(node: Function) -> str:
    """Return the text of parameters and body.

    Decorators, defaults and annotations are evaluated outside of the function.
    """
    a = node.args
    groups = (a.posonlyargs, a.args, [a.vararg], a.kwonlyargs, [a.kwarg])
    names = [[arg and arg.arg for arg in group] for group in groups]
    body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
    statements = map(text, body[_docstrings(node) :])
    return " ".join([type(node).__name__, str(names), *statements])
