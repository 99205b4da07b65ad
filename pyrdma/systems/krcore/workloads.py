"""The workloads of KRCore; see `pyrdma.workload`."""

from __future__ import annotations

from .generated import *  # noqa: F403
