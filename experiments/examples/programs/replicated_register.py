"""A replicated register whose reads go back in time, and its mend.

Run it: python experiments/examples/programs/replicated_register.py [--fixed]

A writer sends numbers to three replicas; a reader takes the higher of two answers. Some packets are
late, so for a while a write is at one replica only. A read that meets it returns the new number,
and a later read of the two others the old one: no order explains both, says `pyrdma.check`. The
mend (Attiya, Bar-Noy, Dolev): readers write what they have found to two replicas, then return.
"""

import sys

import pyrdma as rd
from pyrdma.check import Verdict, check
from pyrdma.program import Node, Peer

REPLICAS, READERS, OPERATIONS, SEEDS = 3, 3, 100, 20
FAULTS = {"delay": 0.1}  # a tenth of the packets, and those behind them, by up to 0.1 ms
START_NS = 100_000_000  # all are connected by then


async def replica(node: Node) -> None:
    """Keep the highest number."""
    kept = bytes(8)  # big-endian, so that bytes compare as their numbers do
    async for request in await node.bind("register"):
        kept = max(kept, request.data)
        await request.reply(kept)


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
    return max(answers)


def run(seed: int, fixed: bool) -> Verdict:
    """Return whether an order explains what node 3 has written and the others have read."""

    async def client(node: Node) -> None:
        peers = [await node.connect("register", to) for to in range(REPLICAS)]
        await node.sleep(ns=START_NS - node.now())
        for number in range(1, OPERATIONS + 1):
            if node.id == REPLICAS:
                write = node.invoke("write", value=number)
                await majority(node, peers, number.to_bytes(8, "big"))
                write.ok()
            else:
                read = node.invoke("read")
                found = await majority(node, peers)
                if fixed:
                    await majority(node, peers, found)
                read.ok(int.from_bytes(found, "big") or None)

    with rd.Cluster.sim(REPLICAS + 1 + READERS, profile="cx5", seed=seed, faults=FAULTS) as cluster:
        programs = {range(REPLICAS): replica, "rest": client}
        return check(cluster.program(programs, model="register").history())


def main() -> None:
    """Check one run per seed."""
    verdicts = [run(seed, fixed="--fixed" in sys.argv) for seed in range(SEEDS)]
    broken = [seed for seed, verdict in enumerate(verdicts) if not verdict.ok]
    print(f"{len(broken)} of {SEEDS} seeds broke the register: {broken}")
    if broken:
        print(verdicts[broken[0]].text)


if __name__ == "__main__":
    main()
