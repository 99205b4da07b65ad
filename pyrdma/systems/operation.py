"""Operations of native objects that live on every node, declared by signature and docstring."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import cached_property
from operator import index
from typing import Annotated, Any, ParamSpec, TypeVar

from pyrdma._native import native
from pyrdma.arguments import Between, check, checked, kinds_of, whole
from pyrdma.cluster import Cluster, InProcess
from pyrdma.errors import Unavailable

__all__ = ["Node", "PerNode", "Signed", "Unsigned", "Word", "open_cluster", "operation"]

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
        cluster._objects.add(self)

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


def operation(declared: Callable[P, R]) -> Callable[P, R]:
    """Make a method of a `PerNode` call the native method of its name.

    The declaration is the signature and the docstring. Arguments are checked against the bounds of
    their types. The native method takes ``node`` first if there is one, then the other arguments
    in the order of the signature. It returns the declared type.
    """
    signature = inspect.signature(declared)
    name = declared.__name__

    @functools.wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        this = given.pop(next(iter(signature.parameters)))
        kinds = kinds_of(declared)
        native_form = {key: this._argument(key, value, kinds[key]) for key, value in given.items()}
        node = (native_form.pop("node"),) if "node" in native_form else ()
        return getattr(this._native, name)(*node, *native_form.values())  # type: ignore[no-any-return]

    return call
