"""Calibration: measure this machine, and write a profile that the simulator runs.

`calibrate` runs micro-benchmarks of the CPU and of a fabric between two nodes of this machine. They
give every parameter of a profile that they can; the profile states why each other one is what it
is. The steps:

1. Operations of the CPU run alone (`cpu`).
2. Rows of the fabric run between two nodes (`rows`). The same rows run in the simulator, and each
   determines one parameter (`solve`).
3. Rows without a parameter are held out. Their errors show how well the profile predicts.

No row is a workload of a system, so that systems remain to be predicted.
"""

from __future__ import annotations

from .measure import Calibration, Measured, calibrate, cpu_lines
from .solve import Agreement

__all__ = ["Agreement", "Calibration", "Measured", "calibrate", "cpu_lines"]
