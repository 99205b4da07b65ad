"""Node programs: Python coroutines that run on the nodes of a cluster, all at the same time.

>>> import pyrdma as rd
>>> async def server(node):
...     inbox = await node.bind("echo")
...     async for request in inbox:
...         await node.work(ns=200)
...         await request.reply(request.data)
>>> async def client(node):
...     peer = await node.connect("echo", to=0)
...     for _ in range(10):
...         start = node.now()
...         await peer.call(b"x" * 32)
...         node.record("rpc", node.now() - start)
>>> with rd.Cluster.sim(nodes=4, profile="cx5", seed=1) as cluster:
...     result = cluster.program({0: server, "rest": client})
>>> result.latency("rpc").count
30

`ClusterBase.program` runs an ``async def`` function on each node, with the node as its argument. On
``sim`` each task has a clock and a CPU of its own in virtual time, and equal seeds give equal runs;
faults, kills and restarts reach programs as they reach native code. On real fabrics each task is a
thread, in real time. With ``mode="process"`` and on hosts (`Cluster.remote`) each node is a
process, which finds its function by file and name: define it at the top level of a file, and run
the cluster below ``if __name__ == "__main__":``. `functools.partial` gives a function arguments;
those of processes are None, bools, texts, numbers, and lists and dicts of these. All functions
begin once each process has loaded its own. A process that ends, ends the program with an error.

Hosts need no copy of the file: the driver sends it, with the modules that it and they import, apart
from installed ones. It finds the modules in the ``import`` statements. A file that a program opens,
or a library that it imports, must be on the host.

The node
--------
`Node` is the function's argument. What can wait is awaited; ``now``, ``record``, ``count``,
``invoke`` and ``spawn`` are plain calls. Python code takes no virtual time: state the CPU time of a
step by ``await node.work(ns=...)``.

===================================== ==============================================================
``node.id, nodes, incarnation``       number of the node, of all nodes, of its restarts
``node.now()``                        the node's clock, ns
``await node.sleep(s, ns=)``          let time pass
``await node.work(s, ns=)``           keep a CPU of the node busy
``await node.bind(service)``          an `Inbox`: ``async for request in inbox``, ``inbox.receive``
``await node.connect(service, to=)``  a `Peer`: ``await peer.call(data)``, ``await peer.send(data)``
``node.spawn(coroutine)``             a `Task` beside this one: ``await task``, ``task.cancel()``
``node.event()``                      an `Event` for tasks of the node
``await node.poll(queue)``            completions of verbs; ``queue_pair.post`` is a plain call
``node.awaits(object)``               a channel, a system's object: its methods are awaited
``await node.do(function, ...)``      another function that may wait
``node.record(name, ns)``             a latency of the result; ``node.count(name, n)`` a number
``node.invoke(function, key, value)`` an operation of the history, for `pyrdma.check`
===================================== ==============================================================

Objects of systems
------------------
Make a channel, or another object of a system, before the programs. In a program,
``own = node.awaits(object)`` is the object for the node's tasks: ``await own.method(...)`` is
``await node.do(object.method, ...)``, and a keyword ``node`` of the method is this node if it is
not given. An object that a method returns is made ready in the same way. A native call that is
under way is not cancelled: it ends by itself, at the latest by its own time limit. A method of
several native calls may be cancelled between two of them, in the simulated world. Tasks of one node
may take turns at a system's objects: while one waits for a lock, the others cannot release it.

In the simulated world a task runs the methods that wait about as fast as a script does, 70,000 to
210,000 per second of one core. `Node.do` calls any other function in an OS thread of its own, which
takes 50 us of CPU time.

The end
-------
The program ends when each node's function has returned or waits for requests, and no request has
come for 1 ms (0.1 s in real time). An ``async for`` over an inbox then ends; other waits raise
`pyrdma.Cancelled`, as a cancelled task's do. Tasks that ``spawn`` has started do not keep the
program from ending. An error that no other task awaits ends it at once, and `program` raises it.

After the end a task can still give back what it holds: ``release`` and ``close`` of an object are
carried out, so call them in a ``finally``. A lock that the task does not release stays held, and
others that wait for it do so up to their own time limit. An operation that fails after the end
raises `pyrdma.Cancelled`.
"""

from __future__ import annotations

from ._core.program import Event, Inbox, Node, OpenOperation, Operation, Peer, Request, Task

__all__ = [
    "Event",
    "Inbox",
    "Node",
    "OpenOperation",
    "Operation",
    "Peer",
    "Request",
    "Task",
]
