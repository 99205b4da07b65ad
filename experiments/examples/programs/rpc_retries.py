"""Remote procedure calls that survive slow replies and a restart of the server.

Run it: python experiments/examples/programs/rpc_retries.py

A call that has timed out may have been executed, or not. The client calls again with the same
request id until it gets a reply. The server keeps the ids of the requests that it has executed on
stable storage, with its data, and executes each only once. It pauses at times after it has executed
a request, and it is killed and started again in the middle of the run.
"""

from collections import Counter

import pyrdma as rd
from pyrdma.program import Node

CLIENTS, REQUESTS = 4, 300
TIMEOUT_S, PAUSE_S = 50e-6, 100e-6
START_NS = 20_000_000  # all clients are connected by then


def run(seed: int, deduplicate: bool = True) -> tuple[rd.Result, Counter[bytes]]:
    """Return the measurements, and how often the server has executed each request."""
    executed: Counter[bytes] = Counter()  # the server's stable storage: a restart keeps it

    async def server(node: Node) -> None:
        inbox = await node.bind("execute")
        async for request in inbox:
            if not deduplicate or request.data not in executed:
                await node.work(ns=500)
                executed[request.data] += 1
                if node.random.random() < 0.01:
                    await node.sleep(PAUSE_S)
            await request.reply()

    async def client(node: Node) -> None:
        peer = await node.connect("execute", to=0)
        await node.sleep(ns=START_NS - node.now())
        for number in range(REQUESTS):
            request_id = b"%d.%d" % (node.id, number)
            start = node.now()
            attempts = 0
            while True:
                attempts += 1
                try:
                    await peer.call(request_id, timeout_s=TIMEOUT_S)
                    break
                except rd.Timeout:  # twice the wait each time, up to 1.6 ms
                    await node.sleep(TIMEOUT_S * 2 ** min(attempts, 5) * node.random.random())
                except rd.Unavailable:  # the connection has ended with the server's process
                    node.count("reconnects")
                    peer = await node.connect("execute", to=0)
            node.record("rpc", node.now() - start)
            node.count("retried", int(attempts > 1))
            node.count("attempts", attempts)

    with rd.Cluster.sim(nodes=1 + CLIENTS, profile="cx5", seed=seed) as cluster:
        cluster.kill(0, after_s=0.021)
        cluster.restart(0, after_s=0.026)
        result = cluster.program({0: server, "rest": client})
    return result, executed


def main() -> None:
    """Run once with request ids that the server remembers, and once without."""
    for deduplicate in (True, False):
        result, executed = run(1, deduplicate)
        latency = result.latency("rpc")
        print("the server remembers request ids" if deduplicate else "\nit does not")
        times = (f"p{p} {latency.percentile(p) / 1000:.1f} us" for p in (50, 90, 99, 99.9))
        print(f"  {latency.count} requests: {', '.join(times)}")
        print(
            f"  {result.value('retried'):.0f} retried, {result.value('attempts'):.0f} attempts, "
            f"{result.value('reconnects'):.0f} reconnects"
        )
        print(f"  {sum(n > 1 for n in executed.values())} executed more than once")


if __name__ == "__main__":
    main()
