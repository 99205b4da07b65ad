"""Stands in for CloudLab's portal: geni-lib's own module `geni.portal` is for Python 2 alone.

It takes the user's choices, refuses what is not among the legal values, and keeps the request and
the reported errors.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import geni
from geni.rspec.pg import Request
from lxml import etree

PROFILE = Path(__file__).resolve().parents[2] / "playbooks/cloudlab/profile.py"


class ParameterType:
    BOOLEAN = "boolean"
    IMAGE = "image"
    INTEGER = "integer"
    NODETYPE = "nodetype"


@dataclass
class ParameterError(Exception):
    message: str
    names: list[str]


class Refused(Exception):
    """The portal shows errors beside the fields, and makes no experiment."""


@dataclass
class Context:
    """A run of the profile with the choices of a user."""

    choices: Mapping[str, Any]
    defaults: dict[str, Any] = field(default_factory=dict)
    errors: list[ParameterError] = field(default_factory=list)
    request: Request | None = None
    printed: bool = False

    def defineParameter(  # noqa: N802 - geni-lib's name
        self,
        name: str,
        description: str,
        kind: str,
        default: Any,
        legal: Any = None,
        longDescription: str = "",  # noqa: N803 - geni-lib's name
    ) -> None:
        assert description
        assert kind in vars(ParameterType).values()
        assert name not in self.defaults
        values = [found[0] for found in legal or ()]
        assert default in values or not values
        if values and self.choices.get(name, default) not in values:
            raise Refused(name)
        self.defaults[name] = default
        del longDescription

    def bindParameters(self) -> SimpleNamespace:  # noqa: N802 - geni-lib's name
        assert self.choices.keys() <= self.defaults.keys()
        return SimpleNamespace(**{**self.defaults, **self.choices})

    def reportError(self, error: ParameterError) -> None:  # noqa: N802 - geni-lib's name
        assert set(error.names) <= self.defaults.keys()
        self.errors.append(error)

    def verifyParameters(self) -> None:  # noqa: N802 - geni-lib's name
        if self.errors:
            raise Refused

    def makeRequestRSpec(self) -> Request:  # noqa: N802 - geni-lib's name
        assert self.request is None
        self.request = Request()
        return self.request

    def printRequestRSpec(self, request: Request) -> None:  # noqa: N802 - geni-lib's name
        assert request is self.request
        self.printed = True


def run(**choices: Any) -> Context:
    """Run the profile with these choices; the request is None if the portal refuses them."""
    context = Context(choices)
    module: Any = ModuleType("geni.portal")
    module.Context = lambda: context
    module.ParameterType, module.ParameterError = ParameterType, ParameterError
    with (
        mock.patch.dict(sys.modules, {"geni.portal": module}),
        mock.patch.object(geni, "portal", module, create=True),
    ):
        try:
            runpy.run_path(str(PROFILE), run_name="__main__")
        except Refused:
            assert context.request is None
    return context


def document(context: Context) -> Any:
    """Return the request of a run, as lxml's tree."""
    assert context.request is not None
    assert context.printed
    return etree.fromstring(context.request.toXMLString())
