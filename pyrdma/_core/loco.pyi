from types import SimpleNamespace

from . import Cluster

channels: SimpleNamespace

class Managers:
    def __init__(
        self,
        cluster: Cluster,
        callers: int = 1,
        block_bytes: int = 4096,
        wait_timeout_s: float = 10.0,
    ) -> None: ...
