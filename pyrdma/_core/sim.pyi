from collections.abc import Mapping
from typing import Any

from . import Cluster as _Cluster

def parameters() -> list[dict[str, Any]]: ...

class Cluster(_Cluster):
    def __init__(
        self,
        nodes: int,
        profile: Mapping[str, float],
        seed: int = ...,
        cores_per_node: int = ...,
        time_limit_ns: int = ...,
    ) -> None: ...
    @property
    def now_ns(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def fingerprint(self) -> int: ...
    def counters(self, node: int) -> dict[str, int]: ...
