"""Where the points of a simulated sweep are measured: here, by Dask, or by Slurm."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

from pyrdma.arguments import shown
from pyrdma.errors import InvalidArgument

__all__ = ["CHOICES", "PROCESSES", "fabric_for", "make"]

PROCESSES = "processes"
CHOICES = f"{PROCESSES}, dask, tls://HOST:PORT or slurm"


def fabric_for(name: str, fabric: str | None) -> str | None:
    """Return the fabric of a run with the executor of this name; None: the experiment's first.

    Raises
    ------
    InvalidArgument
        The executor cannot measure on `fabric`.
    """
    if name == PROCESSES:
        return fabric
    if fabric not in (None, "sim"):
        raise InvalidArgument(
            f"--executor {name[:80]}: fabric {fabric!r} measures this machine in real time, one "
            "point at a time; give --fabric sim, or leave --executor out"
        )
    return "sim"


def make(name: str, jobs: int | None, out: Path) -> Executor:
    """Return the executor of this name; nothing starts before the first point.

    Used as a context manager, the executor ends all that it has started.

    Parameters
    ----------
    name
        ``processes`` of this machine; ``dask``, for processes of this machine that Dask feeds;
        the address of a Dask scheduler; or ``slurm``.
    jobs
        Number of processes or Slurm jobs; one per core if None.
    out
        The results folder. With Slurm it must be one that the nodes see, too.

    Raises
    ------
    InvalidArgument
        There is no such executor, or the address is not safe.
    Unavailable
        A package or a program is missing; the message says how to install it.
    """
    if name == PROCESSES:
        from pyrdma.workers import Workers

        return Workers(jobs)
    if name == "dask":
        from .local_dask import LocalDask

        return LocalDask(jobs)
    if name == "slurm":
        from .slurm_jobs import SlurmJobs

        return SlurmJobs(jobs, out)
    if "://" not in name:
        raise InvalidArgument(f"--executor is {shown(name)}; give {CHOICES}")
    if jobs is not None:
        raise InvalidArgument(
            f"--jobs {jobs} is for processes that pyrdma starts; the scheduler {name[:80]} has "
            "workers of its own, so leave --jobs out"
        )
    from .dask_client import DaskScheduler

    return DaskScheduler(name)
