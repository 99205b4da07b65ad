"""The fields of a stored point, and what each may hold; see `pyrdma.store`."""

from __future__ import annotations

from collections.abc import Mapping

from . import _shapes
from .data import check_name
from .errors import InvalidArgument
from .experiment import ID
from .fabrics import FABRICS
from .places import NAME

__all__ = ["FIELDS", "MOST_RUNS", "RUN"]

MOST_RUNS = 2**53
"""Greatest number of a run."""
RUN = _shapes.integer(0, MOST_RUNS)
"""Shape of the number of a point's run, which files of an earlier version lack."""

_text = _shapes.text(4096)
_node = _shapes.integer(-1, 2**31 - 1)
_values = _shapes.mapping_of(_shapes.is_value, 256)


def _is_named(v: object, *more: str) -> bool:
    """Return whether all names of parameters or labels are those that `check_name` allows."""
    try:
        for name in v if isinstance(v, dict) else ():
            if name not in more:
                check_name(name, "")
    except InvalidArgument:
        return False
    return True


def _labels(v: object) -> bool:
    return _values(v) and _is_named(v)


_IDENTITY: Mapping[str, _shapes.Shape] = {
    "experiment": lambda v: _text(v) and ID.fullmatch(str(v)) is not None,
    "params": lambda v: _values(v) and _is_named(v, "profile"),
    "fabric": _shapes.one_of(*FABRICS),
    "profile": _text,
    "profile_digest": _text,
    "overrides": _shapes.mapping_of(_shapes.is_finite, 4096),
    "seed": _shapes.integer(0, 2**64 - 1),
    "repetition": _shapes.integer(0, 10**6),
    "quick": lambda v: isinstance(v, bool),
    "code": _text,
    "machine": _text,
}
_OPTIONAL = ("testbed", "host")
_WORKLOAD: Mapping[str, _shapes.Shape] = {
    "workload": _text,
    "nodes": _shapes.integer(1, 2**31 - 1),
    "parameters": _shapes.mapping_of(
        lambda v: _shapes.is_value(v) or _shapes.list_of(_shapes.integer(-(2**63), 2**63 - 1))(v),
        256,
    ),
}


def _is_identity(v: object) -> bool:
    if not isinstance(v, dict):
        return False
    if not all(isinstance(v[n], str) and NAME.fullmatch(v[n]) for n in _OPTIONAL if n in v):
        return False
    return _shapes.has({name: v[name] for name in v if name not in _OPTIONAL}, _IDENTITY)


FIELDS: Mapping[str, _shapes.Shape] = {
    "identity": _is_identity,
    "flags": _shapes.list_of(_text),
    "workloads": _shapes.list_of(lambda v: _shapes.has(v, _WORKLOAD)),
    "clock": _shapes.one_of("virtual", "real"),
    "machine": _text,
    "stopped": _text,
    "rows": _shapes.list_of(_shapes.entry(_text, _shapes.is_finite, _text, _labels)),
    "samples": _shapes.list_of(_shapes.entry(_node, _node, _text, _shapes.is_finite, _text)),
    "histograms": _shapes.mapping_of(_shapes.list_of(_shapes.is_base64), 4096),
    "provenance": lambda v: isinstance(v, dict),
}
