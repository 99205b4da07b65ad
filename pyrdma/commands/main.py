"""The entry point: all commands, and the exit status of a command.

With ``--json`` standard output has only the JSON; all other output goes to standard error.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from pyrdma.errors import Error, InvalidArgument

from . import (
    deploy,
    experiments,
    fuzz,
    hosts,
    inventory,
    machine,
    profiles,
    results,
    settable,
    sharing,
    terminal,
    tools,
    validate,
)
from .terminal import INTERRUPTED

__all__ = ["main"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Benchmarks and experiments for RDMA systems: simulated, over shared memory, on NICs.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from pyrdma import __version__

        print(f"pyrdma {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: ARG001 - its callback prints
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version."),
    ] = False,
    experiments: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the experiments, whose code runs. Default: $PYRDMA_EXPERIMENTS, or a "
            "folder `experiments` of yours or root's at or above this one, or the package's.",
        ),
    ] = None,
) -> None:
    """Set what holds for all commands."""
    if experiments is not None:
        from pyrdma.registry import VARIABLE

        # Processes that a command starts take the same folder.
        os.environ[VARIABLE] = str(experiments.resolve())


_COMMANDS = (
    *(experiments, settable, profiles, results, sharing, tools, validate, fuzz, machine),
    *(hosts, inventory, deploy),
)
for module in _COMMANDS:
    module.register(app)


_RESUMING = {"run", "validate", "sensitivity"}
"""Commands that store each point that they have measured."""


def main() -> None:
    """Run the command line. An error prints one line and exits with 1; Ctrl-C exits with 130."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack a letter
        sys.stdout.reconfigure(errors="replace")
    warnings.showwarning = terminal.show_warning  # type: ignore[assignment]
    try:
        # Typer returns the status of an Exit. After Ctrl-C it returns 130 or Abort, by its version.
        status = app(standalone_mode=False)
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
        sys.exit(status or 0)
    except (KeyboardInterrupt, typer.Abort):
        resumes = "--fresh" not in sys.argv and not _RESUMING.isdisjoint(sys.argv)
        kept = "; finished points stay, and the same command resumes the run" if resumes else ""
        terminal.say(f"interrupted{kept}")
        sys.exit(INTERRUPTED)
    except Error as error:
        terminal.say(f"pyrdma: {error}")
        sys.exit(2 if isinstance(error, InvalidArgument) else 1)
    except ModuleNotFoundError as error:
        from pyrdma.extras import lacking_extra

        reason = lacking_extra(error.name)
        if not reason:
            raise
        terminal.say(f"pyrdma: {reason}")
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        what = error.filename or "cannot write the output"
        terminal.say(f"pyrdma: {what}: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest goes nowhere, without a complaint
        sys.exit(1)
    except Exception as error:
        # Typer's usage errors know how to show themselves.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        sys.exit(getattr(error, "exit_code", 2))
