from collections.abc import Callable, Sequence
from typing import Any

def check_file(
    read: Callable[[int], bytes | None], model: str = ..., configurations: int = ...
) -> dict[str, Any]:
    """Read a history (JSON Lines) and check it.

    `read(bytes)` returns the next bytes, none at the end.
    `model` overrides the model of the header.
    """

def merge_histories(texts: Sequence[bytes], clock_bound_ns: int = ...) -> bytes:
    """Merge histories (JSON Lines) by time; see History::merge()."""

def model_names() -> list[str]:
    """Names of the models for a check."""
