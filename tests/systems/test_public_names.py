"""A system's package has the public name `pyrdma.NAME`."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from pyrdma import systems
from tests.errors import raises


@pytest.mark.parametrize("name", systems.NAMES)
def test_both_names_are_one_module(name: str) -> None:
    script = (
        f"import importlib, pyrdma.{name} as public, pyrdma.systems.{name} as package\n"
        f"assert public is package is importlib.import_module('pyrdma').{name}\n"
        f"from pyrdma.{name} import __all__\n"
        "assert importlib.reload(public) is package\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_another_name_is_none() -> None:
    with raises(ModuleNotFoundError, "pyrdma.no_system"):
        importlib.import_module("pyrdma.no_system")
