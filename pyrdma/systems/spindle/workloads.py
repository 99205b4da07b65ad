"""The workloads of Spindle; see `pyrdma.workload`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrdma.arguments import checked

from . import generated
from .generated import *  # noqa: F403
from .group import Group

if TYPE_CHECKING:
    from pyrdma.result import Result


class Multicast(generated.SpindleMulticast):
    """Senders stream messages to all members of a group (Spindle, section 4).

    Parameters
    ----------
    group
        The group; each run forms it anew on every node. Without one the settings ``preset``,
        ``window`` and ``max_message`` take its place.
    settings
        Fields of `pyrdma.workload.SpindleMulticast`.
    """

    @checked
    def __init__(self, group: Group | None = None, **settings: Any) -> None:
        if group is not None:
            names = ("preset", "window", "max_message")
            settings = {**{name: getattr(group, name) for name in names}, **settings}
        super().__init__(**settings)
        if group is not None:
            object.__setattr__(self, "_group", group)

    def _ended(self, result: Result) -> None:
        """Give the group the counters of a run."""
        group: Group | None = vars(self).get("_group")
        if group is not None:
            group._result = result
