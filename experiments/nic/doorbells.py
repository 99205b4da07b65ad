"""Requests of one machine by threads and batch; queue pairs share the driver's 16 registers.

The mlx5 driver gives four of its registers to one queue pair each. All further queue pairs share
the other twelve, each behind a spin lock (rdma-core, providers/mlx5).
"""

from __future__ import annotations

from experiments.nic import _sweep, _threads

experiment = _sweep.experiment(
    "doorbells",
    "Requests of a ConnectX-6 by threads and batch, 16 doorbell registers",
    "cx6",
    _threads.measure(doorbells=16),
    _sweep.lines("doorbells", _threads.chart()),
)
