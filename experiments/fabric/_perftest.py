"""The operations and axes of perftest, for the three micro-benchmarks of the fabric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ATOMICS = ("fetch_add", "compare_swap")
CARRIED = {
    "rc": ("write", "read", "send", "write_imm", "fetch_add", "compare_swap"),
    "uc": ("write", "send", "write_imm"),
    "ud": ("send",),
}
"""Operations of each transport; DC has those of RC, on fabrics with DC."""
DATAGRAM = 1024  # bytes of a datagram that every fabric carries


def possible(params: Mapping[str, Any]) -> bool:
    """Return whether the transport carries the operation at this size."""
    op, size = params["op"], params.get("size", 8)
    if op not in CARRIED[params["transport"]]:
        return False
    if op in ATOMICS and size != 8:
        return False
    return not (params["transport"] == "ud" and size > DATAGRAM)


def sizes(last: int) -> list[int]:
    """Return the powers of two from 2 B to `last`, as perftest's --all."""
    return [2**n for n in range(1, last.bit_length())]
