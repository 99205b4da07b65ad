"""What can be set: an experiment's axes, the parameters of workloads and of profiles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from pyrdma.errors import Error, InvalidArgument, nearest

from . import terminal
from .terminal import Json

if TYPE_CHECKING:
    from rich.table import Table

    from pyrdma._workload import Workload
    from pyrdma.experiment import Experiment

__all__ = ["RunCommand", "about", "register"]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("workloads")(show_workloads)


class RunCommand(TyperCommand):
    """A command whose help for one experiment also says what can be set in it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words, which the help needs."""
        ctx.meta["pyrdma.words"] = list(args)
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """Return the help, with what can be set in the experiment that the words name."""
        from pyrdma import registry

        words = [w for w in ctx.meta.get("pyrdma.words", ()) if not w.startswith("-")]
        described, problems = [], []
        for word in words:
            if "/" in word or word.endswith(".py"):
                try:
                    described += [about(registry.load(name)) for name in registry.find([word])]
                except Error as error:  # the word may be the value of an option
                    problems.append(str(error))
        for problem in [] if described else problems:
            terminal.say(f"pyrdma: {problem}")
        if len(described) > 1:
            described = ["Name one experiment, and its help says what can be set in it."]
        return "\n".join([super().get_help(ctx), *described])


def about(experiment: Experiment) -> str:
    """Return what an experiment measures and what can be set in it: axes, then parameters."""
    from pyrdma.profiles import Profile, parameters

    used = list(_workloads_of(experiment))
    axes = terminal.table(
        *("axis", "unit", "quick run", "full run", "allowed"),
        widest={"quick run": 30, "full run": 40, "allowed": 30},
    )
    for name, axis in experiment.axes.items():
        quick, full = (", ".join(map(str, axis.values(q))) for q in (True, False))
        bounds = dict.fromkeys(_allowed(used, name))
        axes.add_row(name, axis.unit, quick, "the same" if full == quick else full, *bounds or [""])
    parts = [
        f"{experiment.id}: {experiment.title}\n"
        f"fabrics: {', '.join(experiment.fabrics)}; the first is the default\n\n"
        "Axes; --set AXIS=VALUE fixes one:\n" + terminal.text_of(axes)
    ]
    for workload in used:
        parts.append(
            f"Parameters of the workload {workload.__name__}. Axes and the experiment's file set "
            "them;\nthe column `workloads` of the results has those of each point:\n"
            + terminal.text_of(_parameters(workload))
        )
    if "sim" in experiment.fabrics:
        table = terminal.table("parameter", "value", "unit", "allowed")
        for key, found in Profile.load(experiment.profile).parameters.items():
            _, low, high = parameters()[key]
            table.add_row(key, f"{found.value:.15g}", found.unit, f"{low:.15g} to {high:.15g}")
        parts.append(
            f"Parameters of the profile {experiment.profile}, on sim; --set TABLE.KEY=VALUE "
            f"changes one,\nand 'pyrdma profiles {experiment.profile}' has their sources:\n"
            + terminal.text_of(table)
        )
    return "\n".join(parts)


def show_workloads(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A workload, as VerbsLoad.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the workloads, or the parameters of one: default, unit, what is allowed, meaning."""
    from pyrdma._workload import table_of

    classes = _classes()
    if name is None:
        rows = [
            {"name": key, "native": kind.native, "about": (kind.__doc__ or "").split("\n")[0]}
            for key, kind in classes.items()
        ]
        if as_json:
            terminal.print_json(rows)
            return
        table = terminal.table("name", "purpose", widest={"purpose": 110})
        for row in rows:
            table.add_row(row["name"], row["about"])
        terminal.print_table(table)
        return
    found = next((kind for key, kind in classes.items() if name in (key, kind.native)), None)
    if found is None:
        raise InvalidArgument(
            f"no workload has the name {name!r}{nearest(name[:100], classes)}; 'pyrdma workloads' "
            "lists all"
        )
    if as_json:
        terminal.print_json(list(table_of(found.native)))
        return
    print(found.__doc__.partition("Parameters\n")[0].strip() if found.__doc__ else found.__name__)
    terminal.print_table(_parameters(found))


def _classes() -> dict[str, type[Workload]]:
    """Return the workloads that have a native table, by name."""
    from pyrdma import workload

    kinds = {n: k for n, k in vars(workload).items() if isinstance(k, type)}
    of_tables = {n: k for n, k in kinds.items() if issubclass(k, workload.Workload) and k.native}
    return dict(sorted(of_tables.items()))


def _parameters(workload: type[Workload]) -> Table:
    from pyrdma._workload import allowed, table_of

    table = terminal.table(
        *("parameter", "default", "unit", "allowed", "meaning"),
        widest={"allowed": 30, "meaning": 70},
    )
    for row in table_of(workload.native):
        default = bool(row["default"]) if row["unit"] == "bool" else row["default"]
        unit = row["unit"].replace("bool", "")
        of_system = f"; {row['system']} only" if row["system"] else ""
        table.add_row(row["name"], str(default), unit, allowed(row), row["description"] + of_system)
    return table


def _allowed(workloads: Iterable[type[Workload]], name: str) -> Iterator[str]:
    """Yield what the parameters of a name take."""
    from pyrdma._workload import allowed, table_of

    for workload in workloads:
        yield from (allowed(row) for row in table_of(workload.native) if row["name"] == name)


def _workloads_of(experiment: Experiment) -> Iterator[type[Workload]]:
    """Yield the workloads that an experiment's file names, or a helper beside it."""
    names: Mapping[str, Any] = getattr(experiment.measure, "__globals__", {})
    helpers = [value for value in names.values() if isinstance(value, ModuleType)]
    files = [names.get("__file__")]
    files += [h.__file__ for h in helpers if h.__name__.startswith("experiments.")]
    said: set[str] = set()
    for file in filter(None, files):
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Attribute, ast.Name)):
                said.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    yield from (kind for name, kind in _classes().items() if name in said)
