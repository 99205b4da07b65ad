"""What a cluster must not leave behind."""

from __future__ import annotations

from pathlib import Path


def shared_memory() -> list[str]:
    """Return the names of the machine's shared memory.

    Python's own semaphores and the folders of peers come and go with other programs of the machine,
    such as a benchmark beside the tests; clusters make none.
    """
    names = (path.name for path in Path("/dev/shm").iterdir())
    return sorted(name for name in names if not name.startswith(("sem.mp-", "pyrdma-peer-")))
