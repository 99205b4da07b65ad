"""Good calls of what a node program uses; each runs in a program of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyrdma as rd
from pyrdma.program import Node, Operation
from tests.face.world import World

Call = tuple[Callable[..., Any], dict[str, Any]]
Make = Callable[[Node], Any]


async def _receiver(node: Node, inbox: Any) -> None:
    async for request in inbox:
        if request.wants_reply:
            await request.reply(b"")
        await node.sleep(ns=1)


async def _node(node: Node) -> Any:
    return node


async def _event(node: Node) -> Any:
    return node.event()


async def _inbox(node: Node) -> Any:
    return await node.bind("inbox")


async def _bound(node: Node) -> Any:
    node.spawn(_receiver(node, await node.bind("s")))
    return node


async def _peer(node: Node) -> Any:
    node.spawn(_receiver(node, await node.bind("echo")))
    return await node.connect("echo", to=node.id)


async def _request(node: Node) -> Any:
    return await (await node.bind("request")).receive()


async def _caller(node: Node) -> None:
    with suppress(rd.Timeout):
        await (await node.connect("request", to=0, timeout_s=0.05)).call(b"x", timeout_s=0.05)


async def _operation(node: Node) -> Any:
    return node.invoke("write", "x", 1)


def _called(make: Callable[[Node], Any], method: str, **good: Any) -> Callable[[World], Call]:
    """Return the call of a method of what `make` makes, awaited if it is an operation."""

    def call_in(world: World) -> Call:
        def call(**given: Any) -> None:
            async def main(node: Node) -> None:
                made = getattr(await make(node), method)(**given)
                if isinstance(made, Operation) and method != "sleep":
                    await made

            world.cluster.program({0: main, 1: _caller})

        if ("timeout_s" in good and make in (_event, _inbox)) or method == "poll":
            whole = inspect.Parameter("timeout_s", inspect.Parameter.KEYWORD_ONLY)
            optional = whole.replace(annotation="float | None")
            call.__signature__ = inspect.Signature([optional])  # type: ignore[attr-defined]
        arguments = {k: v(world) if callable(v) and k != "function" else v for k, v in good.items()}
        return call, arguments

    return call_in


async def _nothing() -> None:
    pass


async def _program(node: Node) -> None:
    """Do nothing."""


def _protocol(_: World) -> Call:
    times = {"duration_s": 1.0, "deadline_s": 1.0, "heal_s": 0.01}
    what = {"programs": _program, "nodes": 2, "model": "register", "check": len}
    return rd.Protocol, {**what, "kinds": (), "faults": {}, **times}


CALLS: dict[str, Callable[[World], Call]] = {
    "protocol.Protocol": _protocol,
    "program.Event.wait": _called(_event, "wait", timeout_s=1e-6),
    "program.Inbox.receive": _called(_inbox, "receive", timeout_s=1e-6),
    "program.Node.awaits": _called(_node, "awaits", object=lambda w: w.queue),
    "program.Node.bind": _called(_node, "bind", service="s", depth=1, max_bytes=1),
    "program.Node.connect": _called(_bound, "connect", service="s", to=0, timeout_s=0.1),
    "program.Node.count": _called(_node, "count", name="a", n=1.0, unit="count"),
    "program.Node.do": _called(_node, "do", function=dict),
    "program.Node.invoke": _called(_node, "invoke", function="write", key="x", value=1),
    "program.Node.poll": _called(
        _node, "poll", queue=lambda w: w.queue, max=1, timeout_s=1e-6, check=True
    ),
    "program.Node.record": _called(_node, "record", name="a", latency_ns=1),
    "program.Node.sleep": _called(_node, "sleep", s=1e-6, ns=1),
    "program.Node.spawn": _called(_node, "spawn", coroutine=lambda w: w.coroutine(_nothing())),
    "program.Node.work": _called(_node, "work", s=1e-6, ns=1),
    "program.OpenOperation.ok": _called(_operation, "ok", value=1),
    "program.Peer.call": _called(_peer, "call", data=b"x", timeout_s=1.0),
    "program.Peer.send": _called(_peer, "send", data=b"x", timeout_s=1.0),
    "program.Request.reply": _called(_request, "reply", data=b"x"),
    "cluster_base.ClusterBase.program": lambda w: (
        w.cluster.program,
        {"functions": {0: _node}, "deadline_s": 1.0, "duration_s": 1e-3, "model": "register"},
    ),
}

SIGNED = {"program.Node.invoke key", "program.Node.invoke value", "program.OpenOperation.ok value"}
"""Parameters that take -1."""

FREE = SIGNED
"""Parameters of a history, which take any scalar and lists of them."""
