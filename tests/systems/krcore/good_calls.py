"""Good calls of services, to which `tests/face` gives bad values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyrdma import krcore
from tests.face.world import World

Call = Callable[[World], tuple[Callable[..., Any], dict[str, Any]]]

SIGNED: set[str] = set()
"""Parameters that take -1."""

_SMALL: dict[str, Any] = {"arena_bytes": 1 << 20}


def _service(w: World) -> krcore.Service:
    return krcore.Service(w.three_nodes, **_SMALL)


def _local(w: World) -> krcore.Service:
    return krcore.Service(w.threads, **_SMALL)


def _region(w: World) -> krcore.Region:
    return _service(w).app(node=2).reg_mr(64)


def _connected(w: World) -> tuple[krcore.Vqp, krcore.Region]:
    service = _service(w)
    inbox = service.app(node=2)
    inbox.vqp(bind=7)
    vqp = service.app(node=1).vqp()
    vqp.connect(node=2, port=7)
    return vqp, inbox.reg_mr(64)


def _request(name: str, **given: Any) -> Call:
    """Return the good call of a request to a region of the connected node."""

    def call(w: World) -> tuple[Callable[..., Any], dict[str, Any]]:
        vqp, region = _connected(w)
        return getattr(vqp, name), {"region": region, **given, "offset": 0, "timeout_s": 1.0}

    return call


CALLS: dict[str, Call] = {
    "krcore.App.reg_mr": lambda w: (
        _service(w).app(node=1).reg_mr,
        {"size": 64, "access": "all"},
    ),
    "krcore.App.vqp": lambda w: (_service(w).app(node=1).vqp, {"bind": 7}),
    "krcore.Region.load": lambda w: (_region(w).load, {"size": 8, "offset": 0}),
    "krcore.Region.store": lambda w: (_region(w).store, {"data": b"x", "offset": 0}),
    "krcore.Service": lambda w: (
        krcore.Service,
        {
            "cluster": w.three_nodes,
            "meta_servers": [0],
            "preset": "paper",
            "cores": 1,
            "dc_queue_pairs": 2,
            "rc_queue_pairs": 16,
            "rc_policy": "sampled",
            "sample_interval_s": 0.1,
            "frequent_requests": 1000,
            "message_bytes": 16_384,
            "zero_copy_above": 16_384,
            **_SMALL,
            "lease_s": 1.0,
            "app_queues": 64,
            "app_bytes": 1 << 20,
        },
    ),
    "krcore.Service.app": lambda w: (_service(w).app, {"node": 1, "message_bytes": 4096}),
    "krcore.Service.attached": lambda w: (_service(w).attached, {"node": 1}),
    "krcore.Service.clear_caches": lambda w: (_service(w).clear_caches, {"node": 1}),
    "krcore.Service.counters": lambda w: (_service(w).counters, {"node": 1}),
    "krcore.Service.hang_up": lambda w: (_service(w).hang_up, {"node": 1}),
    "krcore.Service.listen": lambda w: (
        _local(w).listen,
        {"node": 0, "folder": w.folder / "listen"},
    ),
    "krcore.Vqp.compare_swap": _request("compare_swap", expected=0, desired=1),
    "krcore.Vqp.connect": lambda w: (
        _service(w).app(node=1).vqp().connect,
        {"node": 2, "port": 7},
    ),
    "krcore.Vqp.fetch_add": _request("fetch_add", addend=1),
    "krcore.Vqp.pop_msgs": lambda w: (_connected(w)[0].pop_msgs, {"timeout_s": 0.01}),
    "krcore.Vqp.read": _request("read", size=8),
    "krcore.Vqp.send": lambda w: (_connected(w)[0].send, {"data": b"x", "timeout_s": 1.0}),
    "krcore.Vqp.write": _request("write", data=b"x"),
    "krcore.attach": lambda w: (
        krcore.attach,
        {"path": _local(w).listen(node=0, folder=w.folder / "attach"), "message_bytes": 4096},
    ),
}
