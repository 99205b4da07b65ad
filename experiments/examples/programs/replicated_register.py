"""A replicated register whose reads go back in time, and its mend.

Run it: python experiments/examples/programs/replicated_register.py [--fixed] [--seeds 20]

A writer sends each number to three replicas; two answers are enough. A reader takes the highest
number of two answers. Some packets are late, so for a while a write is at one replica only. A read
that meets it returns the new number, and a later read of the two others returns the old one: no
order explains both, says `pyrdma.check`. The mend is the second phase of Attiya, Bar-Noy and
Dolev's algorithm: a reader writes what it has found to two replicas before it returns.
"""

import argparse
import struct

import pyrdma as rd
from pyrdma.check import Verdict, check
from pyrdma.program import Node, Peer

REPLICAS, READERS, OPERATIONS = 3, 3, 100
FAULTS = {"delay": 0.1}  # a tenth of the packets, and those behind them, by up to 0.1 ms
START_NS = 100_000_000  # all are connected by then
NUMBER = struct.Struct("<q")


async def replica(node: Node) -> None:
    """Keep the highest number."""
    kept = NUMBER.pack(0)
    async for request in await node.bind("register"):
        kept = max(kept, request.data or kept, key=NUMBER.unpack)
        await request.reply(kept)


async def connect(node: Node) -> list[Peer]:
    """Connect to all replicas, and wait until the other nodes have done so."""
    peers = [await node.connect("register", to) for to in range(REPLICAS)]
    await node.sleep(ns=START_NS - node.now())
    return peers


async def majority(node: Node, peers: list[Peer], data: bytes = b"") -> bytes:
    """Send to all replicas, and return the highest number of the first majority to answer."""
    answers: list[bytes] = []
    enough = node.event()

    async def ask(peer: Peer) -> None:
        answers.append(await peer.call(data))
        if len(answers) > REPLICAS // 2:
            enough.set()

    for peer in peers:
        node.spawn(ask(peer))
    await enough.wait()
    return max(answers, key=NUMBER.unpack)


def run(seed: int, fixed: bool) -> Verdict:
    """Return whether an order explains what the writer and the readers have seen."""

    async def writer(node: Node) -> None:
        peers = await connect(node)
        for number in range(1, OPERATIONS + 1):
            write = node.invoke("write", value=number)
            await majority(node, peers, NUMBER.pack(number))
            write.ok()

    async def reader(node: Node) -> None:
        peers = await connect(node)
        for _ in range(OPERATIONS):
            read = node.invoke("read")
            found = await majority(node, peers)
            if fixed:
                await majority(node, peers, found)
            read.ok(NUMBER.unpack(found)[0] or None)

    with rd.Cluster.sim(
        nodes=REPLICAS + 1 + READERS, profile="cx5", seed=seed, faults=FAULTS
    ) as cluster:
        programs = {range(REPLICAS): replica, REPLICAS: writer, "rest": reader}
        return check(cluster.program(programs, model="register").history())


def main() -> None:
    """Check one run per seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fixed", action="store_true", help="readers write back")
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    verdicts = [run(seed, options.fixed) for seed in range(options.seeds)]
    broken = [seed for seed, verdict in enumerate(verdicts) if not verdict.ok]
    print(f"{len(broken)} of {options.seeds} seeds broke the register: {broken}")
    if broken:
        print(verdicts[broken[0]].text)


if __name__ == "__main__":
    main()
