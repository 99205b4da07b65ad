"""Searches for a small part of a failing run that still fails (Zeller and Hildebrandt 2002)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ddmin", "least_window"]


def ddmin(items: list[Any], fails: Callable[[list[Any]], bool]) -> list[Any]:
    """Return a subset of `items` that still fails; without any one piece of it, none fails."""
    if fails([]):
        return []
    pieces = 2
    while len(items) >= 2:
        size = -(-len(items) // pieces)
        parts = [items[at : at + size] for at in range(0, len(items), size)]
        for index, part in enumerate(parts):
            rest = [item for other in parts[:index] + parts[index + 1 :] for item in other]
            if len(parts) > 2 and fails(part):
                items, pieces = part, 2
                break
            if fails(rest):
                items, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if pieces >= len(items):
                break
            pieces = min(2 * pieces, len(items))
    return items


def least_window(count: int, fails: Callable[[int, int], bool]) -> tuple[int, int]:
    """Return the first and the last number of a window of 0 to `count` - 1 that still fails.

    The whole window fails. Bisection finds its end, then its begin. The window is the smallest if
    each window around one that fails does, too.
    """
    low, last = 0, count - 1
    while low < last:
        middle = (low + last) // 2
        low, last = (low, middle) if fails(0, middle) else (middle + 1, last)
    first, high = 0, last
    while first < high:
        middle = (first + high + 1) // 2
        first, high = (middle, high) if fails(middle, last) else (first, middle - 1)
    return first, last
