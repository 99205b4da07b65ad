"""Predicates on JSON from outside: messages of nodes, stored files. A shape is a predicate.

Arguments of calls are checked by `pyrdma.arguments`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import TypeGuard

__all__ = [
    "Shape",
    "entry",
    "has",
    "integer",
    "is_base64",
    "is_finite",
    "is_number",
    "is_plain",
    "is_value",
    "list_of",
    "mapping_of",
    "one_of",
    "small_integer_text",
    "text",
]

Shape = Callable[[object], bool]

_DIGITS = 20


def small_integer_text(digits: str) -> int:
    """Return the integer of a JSON document; ValueError if it has more digits than 64 bits need."""
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits; at most {_DIGITS} are allowed")
    return int(digits)


def integer(low: int, high: int) -> Shape:
    """Return the shape of integers from `low` to `high`; a bool is none."""
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def text(most: int) -> Shape:
    """Return the shape of texts of at most `most` characters."""
    return lambda v: isinstance(v, str) and len(v) <= most


def one_of(*values: str) -> Shape:
    """Return the shape of these texts."""
    return lambda v: isinstance(v, str) and v in values


def is_number(v: object) -> TypeGuard[float]:
    """Return whether a value is an integer or a float; a bool is neither."""
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def is_finite(v: object) -> TypeGuard[float]:
    """Return whether a value is a number, neither infinite nor NaN."""
    return is_number(v) and math.isfinite(v)


def is_value(v: object) -> TypeGuard[bool | int | float | str]:
    """Return whether a value can be a parameter: a text, a bool, or a finite number of 64 bits.

    Tables hold integers with a sign.
    """
    if isinstance(v, int) and not isinstance(v, bool):
        return -(2**63) <= v < 2**63
    return isinstance(v, (str, bool)) or is_finite(v)


def is_plain(v: object, depth: int = 8) -> bool:
    """Return whether a value is the same after its way through JSON.

    It is None, a text, a bool, a finite number of 64 bits, or a list or an object with texts as
    keys of such values, nested at most `depth` deep.
    """
    if isinstance(v, (list, dict)) and depth:
        inner = v.values() if isinstance(v, dict) else v
        texts = not isinstance(v, dict) or all(isinstance(key, str) for key in v)
        return texts and all(is_plain(item, depth - 1) for item in inner)
    return v is None or is_value(v)


def list_of(item: Shape) -> Shape:
    """Return the shape of lists whose items have the shape `item`."""
    return lambda v: isinstance(v, list) and all(map(item, v))


def entry(*shapes: Shape) -> Shape:
    """Return the shape of lists with an item of each of `shapes`."""
    return lambda v: (
        isinstance(v, list)
        and len(v) == len(shapes)
        and all(shape(item) for shape, item in zip(shapes, v, strict=True))
    )


def mapping_of(item: Shape, most: int) -> Shape:
    """Return the shape of objects of at most `most` fields whose values have the shape `item`."""
    return lambda v: isinstance(v, dict) and len(v) <= most and all(map(item, v.values()))


def is_base64(v: object) -> bool:
    """Return whether a value is a text in base64, without other characters."""
    if not isinstance(v, str):
        return False
    try:
        base64.b64decode(v, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def has(value: object, fields: Mapping[str, Shape]) -> bool:
    """Return whether a value is an object of exactly these fields, each of its shape."""
    return (
        isinstance(value, dict)
        and value.keys() == fields.keys()
        and all(shape(value[name]) for name, shape in fields.items())
    )
