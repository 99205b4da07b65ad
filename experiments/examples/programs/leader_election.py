"""Leader election by terms and majorities, under partitions and deaths.

Run it: python experiments/examples/programs/leader_election.py [--quorum 2]

A member that hears no leader for a while asks all for their votes in a new term. It leads once a
majority has voted for it, until a later term begins or a majority no longer answers. A node beside
the members cuts two of them off, again and again, and kills some. No term may have two leaders, and
one must lead after each fault. Two votes (`--quorum 2`) are no majority of five.
"""

import argparse
import itertools
import struct

import pyrdma as rd
from pyrdma.program import Node, Peer

MEMBERS, ROUNDS = 5, 4
BEAT_S, PATIENCE_S, CALM_S, FAULT_S = 0.001, 0.008, 0.05, 0.04
MESSAGE = struct.Struct("<?q")  # asks for a vote, or agrees; the term
Reigns = dict[tuple[int, int], tuple[int, int]]  # term and leader: begin and last heartbeat, ns


def run(seed: int, quorum: int = 3) -> Reigns:
    """Return who has led when."""
    votes: list[dict[int, int]] = [{} for _ in range(MEMBERS)]  # stable storage: term to vote
    reigns: Reigns = {}

    async def member(node: Node) -> None:
        term, heard = max(votes[node.id], default=0), node.now()
        peers: dict[int, Peer | None] = {}  # None while it connects

        async def serve() -> None:
            nonlocal term, heard
            async for request in await node.bind("election"):
                for_vote, asked = MESSAGE.unpack(request.data)
                term = max(term, asked)
                agrees = asked == term
                if for_vote and agrees:
                    agrees = votes[node.id].setdefault(term, request.source) == request.source
                heard = node.now() if agrees else heard
                await request.reply(MESSAGE.pack(agrees, term))

        async def ask(to: int, message: bytes) -> bool:
            nonlocal term
            try:
                if to not in peers:
                    peers[to] = None
                    peers[to] = await node.connect("election", to, timeout_s=2 * PATIENCE_S)
                peer = peers[to]
                reply = await peer.call(message, timeout_s=BEAT_S / 2) if peer else bytes(9)
            except (rd.Timeout, rd.Unavailable) as error:
                if isinstance(error, rd.Unavailable) or not peers.get(to):
                    peers.pop(to, None)  # connect anew
                return False
            agrees, later = MESSAGE.unpack(reply)
            term = max(term, later)
            return bool(agrees)

        async def majority(for_vote: bool, of: int) -> bool:
            others, message = set(range(MEMBERS)) - {node.id}, MESSAGE.pack(for_vote, of)
            asked = [node.spawn(ask(to, message)) for to in others]
            await node.sleep(BEAT_S)  # who is there answers sooner
            agreed = [await task for task in asked if task.done]
            return 1 + sum(agreed) >= quorum and term == of

        node.spawn(serve())
        while True:
            await node.sleep(PATIENCE_S * (1 + node.random.random()))
            if node.now() - heard > PATIENCE_S * 1e9:
                term += 1
                mine = term
                votes[node.id][mine] = node.id
                leads, begin = await majority(True, mine), node.now()
                while leads:
                    reigns[mine, node.id] = begin, node.now()
                    leads = await majority(False, mine)

    async def faults(node: Node) -> None:
        for turn in range(ROUNDS):
            await node.sleep(CALM_S)
            cut = node.random.sample(range(MEMBERS), 2)
            for a, b in itertools.permutations(range(MEMBERS), 2):
                if (a in cut) != (b in cut):
                    await node.do(cluster.block, a, b, FAULT_S)
            if turn % 2:
                await node.do(cluster.kill, cut[0])
                await node.do(cluster.restart, cut[0], after_s=FAULT_S / 2)
            await node.sleep(FAULT_S)

    with rd.Cluster.sim(nodes=MEMBERS + 1, profile="cx5", seed=seed) as cluster:
        programs = {range(MEMBERS): member, MEMBERS: faults}
        cluster.program(programs, duration_s=ROUNDS * (CALM_S + FAULT_S) + CALM_S)
    return reigns


def faulty_terms(reigns: Reigns) -> set[int]:
    """Return the terms that had two leaders."""
    terms = [term for term, _ in reigns]
    return {term for term in terms if terms.count(term) > 1}


def led_after_faults(reigns: Reigns) -> bool:
    """Return whether there was a leader before each fault, and at the end."""
    periods = (CALM_S + n * (CALM_S + FAULT_S) - 3 * BEAT_S for n in range(ROUNDS + 1))
    return all(any(a < at * 1e9 < b for a, b in reigns.values()) for at in periods)


def main() -> None:
    """Print who has led when, and what was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quorum", type=int, default=3)
    reigns = run(seed=1, quorum=parser.parse_args().quorum)
    for (term, leader), (begin, end) in sorted(reigns.items()):
        print(f"term {term:2}: node {leader} from {begin / 1e6:5.1f} to {end / 1e6:5.1f} ms")
    print(f"terms with two leaders: {sorted(faulty_terms(reigns)) or 'none'}")
    print(f"a leader after each fault: {'yes' if led_after_faults(reigns) else 'no'}")


if __name__ == "__main__":
    main()
