"""Tests compare errors by class and by the values that they name, never by their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

Kind = TypeVar("Kind", bound=BaseException)


def unnamed(text: object, *values: object) -> list[str]:
    """Return the values that a text does not name.

    A value is named where it stands as a whole word: 1 is in ``1.0``, not in ``-1`` or ``12``.
    """
    return [word for word in map(str, values) if not re.search(_pattern(word), str(text))]


def _pattern(word: str) -> str:
    before = r"(?<![\w.])(?<!\W-)(?<!^-)" if word[:1].isdigit() else r"(?<!\w)"
    after = r"(?!\w|\.0*[1-9])" if re.search(r"\w$", word) else ""
    return before + re.escape(word) + after


@contextmanager
def raises(kind: type[Kind], *values: object) -> Iterator[pytest.ExceptionInfo[Kind]]:
    """Expect an error of this class whose message names these values."""
    with pytest.raises(kind) as caught:
        yield caught
    assert unnamed(caught.value, *values) == [], str(caught.value)
