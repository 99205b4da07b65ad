"""Operations of native objects that live on every node, declared by signature and docstring."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from functools import cached_property
from operator import index
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from pyrdma._native import native
from pyrdma.arguments import Between, check, checked, kinds_of, whole
from pyrdma.cluster import Cluster, InProcess
from pyrdma.errors import Unavailable

__all__ = [
    "Node",
    "PerNode",
    "Signed",
    "Unsigned",
    "Word",
    "open_cluster",
    "operation",
    "result_of",
    "waits",
]

P = ParamSpec("P")
R = TypeVar("R")


class _Node:
    """Marks a parameter that is a node of the object's cluster."""


class _Word:
    """Marks a parameter whose number the native side gets modulo 2**64."""


Node = Annotated[int, _Node]
"""A node of the object's cluster."""
Unsigned = Annotated[int, Between(0, 2**64 - 1)]
"""A whole number of 64 bits without a sign."""
Signed = Annotated[int, Between(-(2**63), 2**63 - 1)]
"""A whole number of 64 bits with a sign."""
Word = Annotated[int, Between(-(2**63), 2**64 - 1), _Word]
"""The bits of a word of 64 bits, with a sign or without."""


def open_cluster(cluster: Cluster) -> Any:
    """Return the native cluster, whose nodes live in this process."""
    if not isinstance(cluster, InProcess):
        raise Unavailable(
            "the nodes of this cluster are other processes, whose objects only workloads "
            "can use; for a script use Cluster.sim(...) or Cluster.local(..., mode='thread')"
        )
    return cluster._open


class PerNode:
    """An object with one part on every node; the native parts are made at the first use.

    Parameters
    ----------
    cluster
        The cluster whose nodes take part.
    """

    @checked
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        cluster._objects[next(cluster._numbers)] = self

    def _prepare(self) -> None:
        """Make the native parts, which a node program could not: that runs on all nodes at once."""
        _ = self._native

    def _make(self, core: Any) -> Any:
        """Make the native object."""
        raise NotImplementedError

    @cached_property
    def _native(self) -> Any:
        return self._make(native())

    def _node(self, name: str, value: object) -> int:
        """Return the number of an existing node."""
        return whole(name, value, 0, self.cluster.nodes - 1)

    def _argument(self, name: str, value: Any, kind: Any) -> Any:
        """Return an argument in the form of the native side."""
        marks = getattr(kind, "__metadata__", ())
        if _Node in marks:
            return self._node(name, value)
        check(name, value, kind)
        return index(value) % 2**64 if _Word in marks else value


def _native_form(name: str, kind: Any) -> Callable[[Any, Any], Any]:
    """Return the function that brings an argument of a `PerNode` into the form of the native side.

    It judges usual numbers itself, since `PerNode._argument` takes longer than some operations.
    """
    marks = getattr(kind, "__metadata__", ())
    bounds = next((mark for mark in marks if isinstance(mark, Between)), None)
    is_node = _Node in marks
    least, most = (bounds.least, bounds.most) if bounds else (0, None)

    def form(this: PerNode, value: Any) -> Any:
        if type(value) is int and value >= least:
            if is_node and value < this.cluster.nodes:
                return value
            if most is not None and value <= most:
                return value % 2**64 if _Word in marks else value
        return this._argument(name, value, kind)

    return form


def operation(declared: Callable[P, R]) -> Callable[P, R]:
    """Make a method of a `PerNode` call the native method of its name.

    The declaration is the signature and the docstring. Arguments are checked against the bounds of
    their types. The native method takes ``node`` first if there is one, then the other arguments
    in the order of the signature. It returns the declared type. As with `waits`, ``Node.do`` awaits
    the native call as an operation of the task.
    """
    signature = inspect.signature(declared)
    name = declared.__name__
    _, *parameters = signature.parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    order = sorted((p.name for p in parameters), key=lambda each: each != "node")
    names = set(order)

    @functools.cache
    def native_forms() -> list[tuple[str, Callable[[Any, Any], Any]]]:
        kinds = kinds_of(declared)
        return [(each, _native_form(each, kinds[each])) for each in order]

    def native_call(this: Any, /, *args: Any, **kwargs: Any) -> Any:
        # For most calls these lines do what `bind` does, in a tenth of its time.
        given = {**defaults, **dict(zip(places, args, strict=False)), **kwargs}
        if len(args) + len(kwargs) + len(defaults) != len(order) or given.keys() != names:
            bound = signature.bind(this, *args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
        native_method = getattr(this._native, name)
        return native_method(*[form(this, given[each]) for each, form in native_forms()])

    call = functools.wraps(declared)(native_call)
    call.__pyrdma_steps__ = native_call  # type: ignore[attr-defined]
    return cast("Callable[P, R]", call)


async def result_of(found: Any) -> Any:
    """Return what a native method that waits has returned; in steps of a node program, await it."""
    return await found if hasattr(found, "__await__") else found


def waits(declared: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Make a method that waits of an ``async def`` function, for scripts and for node programs.

    Arguments are `checked`. The function awaits nothing but `result_of` and functions that do the
    same. A script's call runs it to its end at once. ``Node.do`` finds it as
    ``__pyrdma_steps__`` of the method, and awaits the native calls as operations of the task.
    """
    steps = checked(declared)

    @functools.wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            steps(*args, **kwargs).send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise RuntimeError(f"{declared.__name__} waits for something else than native methods")

    call.__pyrdma_steps__ = steps  # type: ignore[attr-defined]
    return call
