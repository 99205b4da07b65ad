"""Leader election by terms and majorities, under partitions and deaths.

Run it: python experiments/examples/programs/leader_election.py [QUORUM]

A member that hears no leader for a while asks all for their votes in a new term. It leads while a
majority votes for it, beat after beat. A member has one vote in a term, and none in earlier ones.
Members are cut off, die and come back. No term may have two leaders, and one must lead again soon
after each fault. A quorum of 2 is no majority of five.
"""

import sys

import pyrdma as rd
from pyrdma.program import Node, Peer

MEMBERS, BEAT_S, PATIENCE_S, RUN_S = 5, 0.03, 0.1, 4.0
FAULTS = {f"{kind}.rate": 0.001 for kind in ("partition", "isolation", "crash")}  # one in a second
FAULTS |= {key.replace("rate", "max_ns"): 4e8 for key in FAULTS}  # 0.4 s at most
Reigns = dict[tuple[int, int], list[int]]  # term and leader: first and last beat, ns


def run(seed: int, quorum: int = 3) -> Reigns:
    """Return who has led when."""
    reigns, storage = Reigns(), [{0: 0} for _ in range(MEMBERS)]  # stable: votes by term

    async def member(node: Node) -> None:
        votes, heard, peers = storage[node.id], node.now(), dict[int, Peer]()

        async def serve() -> None:
            nonlocal heard
            async for request in await node.bind("election"):
                source, term = request.source, int.from_bytes(request.data, "big")
                agrees = term >= max(votes) and votes.setdefault(term, source) == source
                heard = node.now() if agrees else heard
                await request.reply(b"yes" if agrees else b"")

        async def ask(to: int, term: int) -> bool:
            try:
                if to not in peers:
                    peers[to] = await node.connect("election", to, timeout_s=BEAT_S)
                return await peers[to].call(term.to_bytes(8, "big"), timeout_s=BEAT_S) == b"yes"
            except (rd.Timeout, rd.Unavailable):
                peers.pop(to, None)  # connect anew
                return False

        node.spawn(serve())
        while True:
            await node.sleep(PATIENCE_S * (1 + node.random.random()))
            leads, term = node.now() - heard > PATIENCE_S * 1e9, max(votes) + 1
            while leads and term >= max(votes):
                votes[term] = node.id
                asked = [node.spawn(ask(to, term)) for to in range(MEMBERS) if to != node.id]
                leads = 1 + sum([await task for task in asked]) >= quorum
                if leads:
                    reigns.setdefault((term, node.id), [node.now(), 0])[1] = node.now()
                    await node.sleep(BEAT_S)

    with rd.Cluster.sim(MEMBERS, profile="cx5", seed=seed, faults=FAULTS) as cluster:
        cluster.program(member, duration_s=RUN_S)
    return reigns


def judge(reigns: Reigns) -> tuple[list[int], float]:
    """Return the terms that had two leaders, and the longest time without a leader in ms."""
    terms, end, gap = [term for term, _ in sorted(reigns)], 0, 0
    for first, last in [*sorted(reigns.values()), [int(RUN_S * 1e9), 0]]:
        end, gap = max(end, last), max(gap, first - end)
    return [term for term in set(terms) if terms.count(term) > 1], gap / 1e6


def main() -> None:
    """Print what was wrong with each seed."""
    for seed in range(10):
        twice, gap_ms = judge(run(seed, int(sys.argv[1]) if sys.argv[1:] else 3))
        print(f"seed {seed}: terms with two leaders: {twice or 'none'}; none for {gap_ms:.0f} ms")


if __name__ == "__main__":
    main()
