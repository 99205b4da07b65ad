"""Mutations of valid inputs for a bounded time; runs of one seed begin with equal inputs.

Each test takes ``PYRDMA_HOSTILE_S`` seconds, by default one, as the native ``HostileInput`` does.
``PYRDMA_HOSTILE_SEED`` seeds the mutations of both, by default with one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence

SECONDS = float(os.environ.get("PYRDMA_HOSTILE_S", "1"))
SEED = int(os.environ.get("PYRDMA_HOSTILE_SEED", "1"))
LEAST = 200

WORDS = (
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"null",
    b'""',
    b"[]",
    b"{}",
    b"[",
    b"}",
    b'"',
    b"\\",
    b"\xff",
)


def inputs(seeds: Sequence[bytes]) -> Iterator[bytes]:
    """Return the seeds, then mutations of them."""
    choice = random.Random(SEED)
    end = time.monotonic() + SECONDS
    given = 0
    while given < LEAST + len(seeds) or time.monotonic() < end:
        yield seeds[given] if given < len(seeds) else mutate(choice, seeds)
        given += 1


def mutate(choice: random.Random, seeds: Sequence[bytes]) -> bytes:
    data = bytearray(choice.choice(seeds))
    for _ in range(choice.randint(1, 6)):
        at = choice.randint(0, len(data))
        match choice.randrange(7):
            case 0:
                data[at:at] = choice.randbytes(choice.randint(1, 8))
            case 1:
                del data[at : at + choice.randint(1, 8)]
            case 2:
                del data[at:]
            case 3:
                other = choice.choice(seeds)
                data[at:] = other[choice.randint(0, len(other)) :]
            case 4:
                data[at:at] = choice.choice(WORDS)
            case 5:
                begin = choice.randint(0, len(data))
                data[at:at] = data[begin : begin + choice.randint(1, 64)]
            case _:
                if at < len(data):
                    data[at] ^= 1 << choice.randrange(8)
    return bytes(data)
