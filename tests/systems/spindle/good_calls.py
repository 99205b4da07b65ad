"""Good calls of groups and domains, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import spindle, workload
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED = {"spindle.SpindleMulticast delay_ns"}
"""Parameters that take -1."""


def _group(w: World) -> spindle.Group:
    return spindle.Group(w.cluster, suspicion_timeout_s=0.02)


def _domain(w: World, quality: Any = "volatile") -> spindle.Domain:
    topic = spindle.Topic("t", [0], [1], quality)
    return spindle.Domain(w.cluster, [topic], suspicion_timeout_s=0.02)


def _outside(w: World) -> spindle.Group:
    return spindle.Group(w.cluster, founders=[0], suspicion_timeout_s=0.02)


def _outside_domain(w: World) -> spindle.Domain:
    topic = spindle.Topic("t", [0], [1])
    return spindle.Domain(w.cluster, [topic], founders=[0], suspicion_timeout_s=0.02)


def _received(w: World) -> spindle.Group:
    group = _group(w)
    group.send(b"x", node=0)
    return group


def _taken(w: World) -> spindle.Domain:
    domain = _domain(w)
    domain.publish("t", b"x", node=0)
    return domain


def _subscriber(w: World) -> spindle.Group:
    return spindle.Group(w.threads)


CALLS: dict[str, Call] = {
    "spindle.Domain": lambda w: (
        spindle.Domain,
        {
            "cluster": w.cluster,
            "topics": [spindle.Topic("t", [0], [1])],
            "preset": "paper",
            "founders": [0, 1],
            "clients": [],
            "restart": False,
            "cut_damage": False,
            "suspicion_timeout_s": 0.02,
        },
    ),
    "spindle.Domain.join": lambda w: (_outside_domain(w).join, {"node": 1}),
    "spindle.Domain.leave": lambda w: (_domain(w).leave, {"node": 1, "timeout_s": 1.0}),
    "spindle.Domain.publish": lambda w: (
        _domain(w).publish,
        {"topic": "t", "data": b"x", "node": 0, "timeout_s": 1.0},
    ),
    "spindle.Domain.read": lambda w: (
        _domain(w).read,
        {"topic": "t", "node": 1, "first": 0, "most": 1},
    ),
    "spindle.Domain.standing": lambda w: (_domain(w).standing, {"node": 1}),
    "spindle.Domain.sync": lambda w: (_domain(w, "logged").sync, {"node": 1}),
    "spindle.Domain.take": lambda w: (
        _taken(w).take,
        {"topic": "t", "node": 1, "most": 1, "timeout_s": 1.0},
    ),
    "spindle.Group": lambda w: (
        spindle.Group,
        {
            "cluster": w.cluster,
            "preset": "paper",
            "window": 4,
            "max_message": 64,
            "subgroups": [spindle.Subgroup()],
            "founders": [0, 1],
            "suspicion_timeout_s": 0.02,
        },
    ),
    "spindle.Group.join": lambda w: (_outside(w).join, {"node": 1}),
    "spindle.Group.leave": lambda w: (_group(w).leave, {"node": 1, "timeout_s": 1.0}),
    "spindle.Group.receive": lambda w: (
        _received(w).receive,
        {"node": 1, "subgroup": 0, "most": 1, "timeout_s": 1.0},
    ),
    "spindle.Group.send": lambda w: (
        _group(w).send,
        {"data": b"x", "node": 0, "subgroup": 0, "timeout_s": 1.0},
    ),
    "spindle.Group.standing": lambda w: (_group(w).standing, {"node": 1}),
    "spindle.Group.subscribe": lambda w: (
        _subscriber(w).subscribe,
        {"function": len, "node": 0, "subgroup": 0},
    ),
    "spindle.Group.table": lambda w: (_group(w).table, {"node": 1, "subgroup": 0}),
    "spindle.Subgroup": lambda _: (
        spindle.Subgroup,
        {"members": [0], "senders": [0], "window": 1, "max_message": 1, "order": "total"},
    ),
    "spindle.Topic": lambda _: (
        spindle.Topic,
        {
            "name": "t",
            "publishers": [0],
            "subscribers": [1],
            "quality": "atomic",
            "window": 1,
            "max_sample": 1,
            "history": 1,
            "sync_every": 0,
        },
    ),
    "spindle.Multicast": lambda w: (workload.Multicast, {"group": _group(w)}),
}
