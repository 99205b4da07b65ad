"""The public callables of the package, found by introspection."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pyrdma
from pyrdma import systems
from pyrdma.cluster import SimulatedCluster, ThreadCluster
from pyrdma.processes import ProcessCluster

MADE_BY_THE_PACKAGE = {
    "check.Operation",
    "check.Verdict",
    "claims.Claim",
    "claims.Verdict",
    "cloudlab.Inventory",
    "cluster.SimulatedCluster",
    "cluster.ThreadCluster",
    "devices.Entry",
    "fuzz_summary.Summary",
    "fuzz_summary.Summary.add",
    "krcore.App",
    "krcore.Region",
    "krcore.Vqp",
    "processes.ProcessCluster",
    "profiles.Parameter",
    "profiles.Profile",
    "result.Sample",
    "spindle.Message",
    "spindle.Sample",
    "spindle.Subscription",
    "tailwind.Crash",
    "tailwind.Recovery",
}
"""Classes, and one method, whose objects only the package makes; its own tests check them."""

NOT_CHECKED = {"check.command", "judging.judge", "decide.Decision"}
"""A function of the command line; what a decider returns, and its judge, who takes a NaN, too."""


def modules() -> list[ModuleType]:
    """Return the modules whose public names users call."""
    found = {n for n in pyrdma.__all__ if inspect.ismodule(getattr(pyrdma, n))}
    found |= {
        "check",
        "cloudlab",
        "devices",
        "fuzz",
        "result",
        *(f"systems.{n}" for n in systems.NAMES),
    }
    return [importlib.import_module(f"pyrdma.{n}") for n in sorted(found - set(systems.NAMES))]


@cache
def callables() -> dict[str, Any]:
    """Return every public function, method and constructor that takes arguments, by its name."""
    roots = [getattr(module, name) for module in modules() for name in module.__all__]
    roots += [getattr(pyrdma, name) for name in pyrdma.__all__]
    roots += [SimulatedCluster, ThreadCluster, ProcessCluster]
    found: dict[str, Any] = {}
    for root in roots:
        for each in _with_methods(root):
            name = name_of(each, root)
            if parameters(each) and name not in MADE_BY_THE_PACKAGE | NOT_CHECKED:
                found[name] = each
    return found


def _with_methods(root: Any) -> Iterator[Any]:
    ours = getattr(root, "__module__", None) or ""
    if not callable(root) or not ours.startswith("pyrdma"):
        return
    if not isinstance(root, type):
        yield root
        return
    if issubclass(root, (BaseException, int)):  # errors, and the enumerations of verbs
        return
    if not inspect.isabstract(root) and _has_constructor(root):
        yield root
    for name, member in inspect.getmembers(root):
        owner = next((k for k in root.__mro__ if name in vars(k)), root)
        if (
            not name.startswith("_")
            and inspect.isroutine(member)
            and owner.__module__.startswith("pyrdma")
        ):
            yield member


def _has_constructor(root: type) -> bool:
    if root.__module__.startswith("pyrdma._core"):
        return "__init__" in vars(root) and root.__init__.__doc__ is not None  # type: ignore[misc]
    return root.__init__ is not object.__init__  # type: ignore[misc]


def name_of(each: Any, root: Any) -> str:
    """Return ``module.Class.method``, as users import it, of a public name or its method."""
    if root.__module__.startswith("pyrdma._core") and each is not root:
        module = root.__module__.removeprefix("pyrdma._core.")
        return f"{module}.{root.__name__}.{each.__name__}"
    module = re.sub(r"^pyrdma\.?(_core\.|systems\.)?", "", each.__module__)
    for inner, outer in (
        (r"^_workload(_classes)?$", "workload"),
        *((rf"^{system}\..*", system) for system in systems.NAMES),
        (r"^experiment$", "experiment"),
    ):
        module = re.sub(inner, outer, module)
    return f"{module}.{each.__qualname__}".lstrip(".")


def docstring(native: Any) -> str:
    """Return the docstring of a native function or constructor, which begins with its signature."""
    described = vars(native)["__init__"] if isinstance(native, type) else native
    return described.__doc__ or ""


def parameters(each: Any) -> list[str]:
    """Return the names of a callable's parameters, without those that collect further arguments."""
    try:
        signature = inspect.signature(each)
    except ValueError:  # a native function, whose docstring begins with its signature
        text = docstring(each).split("->")[0]
        return [n for n in re.findall(r"(\w+): ", text) if n != "self"]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p.name for p in signature.parameters.values() if p.kind not in kinds and p.name != "self"
    ]
