"""The public name of `pyrdma.systems.loco`."""

from .systems.loco import *  # noqa: F403
