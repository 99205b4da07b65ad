"""The helper that compares errors by class, and by values as whole words."""

from __future__ import annotations

import pytest

from pyrdma import Error, InvalidArgument
from tests.errors import raises, unnamed


def test_a_value_is_named_as_a_whole_word() -> None:
    assert unnamed("size is -1; give 1 to 4096 B", "size", -1, 1, 4096, "B") == []
    assert unnamed("'x' of /a/b.so:y; see --out", "x", "'x'", "/a/b.so", "--out") == []
    assert unnamed("loss is 2.000", 2, "2.000") == []
    for text in ("", "-1", "0.1", "12", "1.5", "x1", "is -1"):
        assert unnamed(text, 1) == ["1"]


def test_class_and_values_are_compared() -> None:
    with raises(Error, 3) as caught:
        raise InvalidArgument("node 3 is none")
    assert isinstance(caught.value, InvalidArgument)
    with pytest.raises(AssertionError), raises(Error, 4):
        raise InvalidArgument("node 3 is none")
    with pytest.raises(InvalidArgument), raises(OSError):
        raise InvalidArgument("node 3 is none")
