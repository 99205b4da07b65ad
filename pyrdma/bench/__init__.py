"""``pyrdma bench``: the speed of pyrdma and of its peers, measured in one run.

`benchmark` defines a benchmark, `registry` lists the benchmarks, `ours` measures pyrdma, `peer` and
``experiments/peers`` measure the peers, `runner` runs both sides alternately, `report` prints.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["command"]


def command(names: Sequence[str] = (), as_json: bool = False, budget_s: float = 55.0) -> int:
    """Run the benchmarks whose names begin with one of `names`, and print them.

    Standard output gets the table or only the JSON; progress and notices go to standard error.

    Returns
    -------
    int
        Exit status: 0, or 1 when a measurement of pyrdma failed.

    Raises
    ------
    InvalidArgument
        A name selects nothing.
    """
    from rich.console import Console

    from . import registry, report, runner

    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    chosen = runner.select(registry.benchmarks(), names)
    with errors.status("starting") as status:
        rows = runner.run(
            chosen,
            budget_s,
            notice=lambda line: errors.print(line, markup=False),
            progress=status.update,
        )
    if as_json:
        print(report.as_json(rows))
    else:
        Console().print(report.as_table(rows))
    return 1 if any(row.value is None for row in rows) else 0
