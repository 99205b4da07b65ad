"""What a check takes for usual without a further look."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest

from pyrdma.arguments import Between, _usual, check
from pyrdma.errors import InvalidArgument

KINDS: list[Any] = [
    int,
    float,
    bool,
    bytes,
    str,
    Any,
    int | None,
    list[int],
    Annotated[int, Between(0, 7)],
    Annotated[int, Between(-3)],
    Annotated[float, Between(0)],
    Annotated[float, Between(0.5, 7)],
    Annotated[int, "a remark"],
    Between,
]
VALUES: list[Any] = [
    *(0, 1, 7, 8, -3, -4, 10**400, -(10**400), True, False),
    *(0.0, 0.5, 7.0, 7.5, -1.0, 1e308, math.inf, -math.inf, math.nan),
    *(np.int64(3), np.float64(3), Fraction(1, 2), "7", "\x00", b"7", None, [1], ["x"], Between(1)),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_no_usual_value_is_refused(kind: Any) -> None:
    is_usual = _usual(kind)
    taken = []
    for value in VALUES:
        if is_usual(value):
            check("value", value, kind)
            taken.append(value)
    assert taken or kind not in (int, float, bool, bytes)


def test_values_at_the_bounds() -> None:
    is_usual = _usual(Annotated[int, Between(0, 7)])
    assert [n for n in range(-2, 10) if is_usual(n)] == list(range(8))
    with pytest.raises(InvalidArgument):
        check("value", 8, Annotated[int, Between(0, 7)])
