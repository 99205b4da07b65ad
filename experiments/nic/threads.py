"""Requests of one machine by threads and batch; each queue pair has a doorbell register."""

from __future__ import annotations

from experiments.nic import _sweep, _threads

experiment = _sweep.experiment(
    "threads",
    "Requests of a ConnectX-6 by threads and batch, a doorbell register for each queue pair",
    "cx6",
    _threads.measure(doorbells=0),
    _sweep.lines("threads", _threads.chart()),
)
