"""Operations of native objects that live on every node, declared by signature and docstring."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from pyrdma._native import native
from pyrdma.cluster import Cluster, InProcess
from pyrdma.errors import InvalidArgument, Unavailable

__all__ = ["Node", "PerNode", "Signed", "Unsigned", "Word", "open_cluster", "operation", "whole"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Bounds:
    """Bounds of a whole number; the native side gets the number modulo `modulo`."""

    least: int
    most: int
    modulo: int | None = None


_NODE = _Bounds(0, 0)  # the cluster has the real bounds

Node = Annotated[int, _NODE]
"""A node of the object's cluster."""
Unsigned = Annotated[int, _Bounds(0, 2**64 - 1)]
"""A whole number of 64 bits without a sign."""
Signed = Annotated[int, _Bounds(-(2**63), 2**63 - 1)]
"""A whole number of 64 bits with a sign."""
Word = Annotated[int, _Bounds(-(2**63), 2**64 - 1, 2**64)]
"""The bits of a word of 64 bits, with a sign or without."""


def whole(what: str, value: object, least: int = 0, most: int = 2**64 - 1) -> int:
    """Return a whole number that is within its bounds."""
    try:
        number = index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgument(f"{what} is {value!r}; give a whole number") from None
    if not least <= number <= most:
        raise InvalidArgument(f"{what} is {number}; allowed is {least} to {most}")
    return number


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

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def _make(self, core: Any) -> Any:
        """Make the native object."""
        raise NotImplementedError

    @cached_property
    def _native(self) -> Any:
        return self._make(native())

    def _node(self, name: str, value: object) -> int:
        """Return the number of an existing node."""
        last = self.cluster.nodes - 1
        number = whole(name, value, -(2**63))
        if not 0 <= number <= last:
            raise InvalidArgument(f"{name} is {number}; the cluster's nodes are 0 to {last}")
        return number

    def _argument(self, name: str, value: object, bounds: _Bounds | None) -> object:
        """Return an argument in the form of the native side."""
        if bounds is None:
            return value
        if bounds is _NODE:
            return self._node(name, value)
        number = whole(name, value, bounds.least, bounds.most)
        return number if bounds.modulo is None else number % bounds.modulo


def operation(declared: Callable[P, R]) -> Callable[P, R]:
    """Make a method of a `PerNode` call the native method of its name.

    The declaration is the signature and the docstring. Arguments are checked against the bounds of
    their types. The native method takes ``node`` first if there is one, then the other arguments
    in the order of the signature. It returns the declared type.
    """
    signature = inspect.signature(declared)
    name = declared.__name__

    @functools.cache
    def bounds() -> dict[str, _Bounds | None]:
        hints = get_type_hints(declared, include_extras=True)
        found: dict[str, _Bounds | None] = {}
        for parameter in list(signature.parameters)[1:]:
            extras = getattr(hints[parameter], "__metadata__", ())
            found[parameter] = next((e for e in extras if isinstance(e, _Bounds)), None)
        return found

    @functools.wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        this = given.pop(next(iter(signature.parameters)))
        checked = {key: this._argument(key, given[key], limit) for key, limit in bounds().items()}
        node = (checked.pop("node"),) if "node" in checked else ()
        return getattr(this._native, name)(*node, *checked.values())  # type: ignore[no-any-return]

    return call
