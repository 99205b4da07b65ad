"""Open MPI's one-sided operations between two pinned ranks, over a window in shared memory.

``one_sided.c``, beside this file, defines a turn of each loop: windows of 64 requests ended by a
flush. Rank 0 alone issues them. Both ranks work in ``contended_lock_rate`` (one lock; under it, a
word is read, incremented and written) and in ``transaction_rate`` (two locks of 341 windows, two
accounts of a million). The names with ``_default`` leave the choice of the one-sided component to
Open MPI; Debian's 4.1.4 then takes ``rdma``. The other names ask for ``sm``, which is faster: a get
is a ``memcpy``, a fetch-and-op takes a lock in the window, and the flush is a memory barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    chosen,
    compiled,
    missing_tools,
    named_values,
    output_of,
    shared_memory_folder,
    two_cpus,
)

NAME = "Open MPI"
INSTALL_COMMAND = "apt-get install openmpi-bin libopenmpi-dev gcc"

_RATES = ("put_rate_8", "put_rate_64", "get_rate_8", "fetch_add_rate_8", "lock_rate")
_BOTH = ("contended_lock_rate", "transaction_rate")
_LATENCIES = ("get_latency_8", "barrier_latency")
_DEFAULT = "_default"
MEASUREMENTS = {
    **dict.fromkeys(_RATES, "op/s"),
    **dict.fromkeys(_BOTH, "op/s"),
    **dict.fromkeys(_LATENCIES, "s"),
    f"get_rate_8{_DEFAULT}": "op/s",
    f"fetch_add_rate_8{_DEFAULT}": "op/s",
    **{f"{name}{_DEFAULT}": "op/s" for name in _BOTH},
}


def available() -> Availability:
    """Return whether ``mpirun``, ``mpicc`` and two CPUs for the ranks are available."""
    tools = missing_tools(["mpirun", "mpicc", "timeout"], INSTALL_COMMAND)
    return two_cpus(INSTALL_COMMAND) if tools.ok else tools


def _launcher(folder: Path, component: str | None) -> list[str]:
    # The program pins its ranks itself.
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2"]
    parameters = {
        "plm": "isolated",  # Open MPI looks for no remote shell
        "pml": "ob1",
        "mpi_yield_when_idle": "0",
        "btl_vader_backing_directory": str(folder),
        "osc_sm_backing_directory": str(folder),
        "osc_rdma_backing_directory": str(folder),
        "orte_tmpdir_base": str(folder),
    }
    if component is not None:
        parameters |= {"osc": component, "btl": "self,vader"}
    for key, value in parameters.items():
        command += ["--mca", key, value]
    return command


def _run(names: Sequence[str], seconds: float, component: str | None) -> dict[str, float]:
    if not names:
        return {}
    source = Path(__file__).with_name("one_sided.c")
    program = compiled(source, ["mpicc", "-O3"])
    with shared_memory_folder() as folder:
        command = [*_launcher(folder, component), str(program), f"{seconds:g}", *names]
        return named_values(output_of(command), names)


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the program if necessary and measure; the module describes the measurements."""
    names = chosen(measurements, MEASUREMENTS)
    by_default = [name.removesuffix(_DEFAULT) for name in names if name.endswith(_DEFAULT)]
    values = _run([name for name in names if not name.endswith(_DEFAULT)], seconds, "sm")
    for name, value in _run(by_default, seconds, None).items():
        values[name + _DEFAULT] = value
    return {name: values[name] for name in names}
