from types import SimpleNamespace

from . import Cluster

channels: SimpleNamespace

class Managers:
    """LOCO's manager at each node of this process, with `callers` callers each."""

    def __init__(
        self,
        cluster: Cluster,
        callers: int = 1,
        block_bytes: int = 4096,
        wait_timeout_s: float = 10.0,
    ) -> None: ...
