"""The workloads of LOCO's channels; see `pyrdma.workload`."""

from .generated import *  # noqa: F403
