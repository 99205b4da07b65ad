from types import TracebackType

from typing_extensions import Self

from . import check as check
from . import fuzz as fuzz
from . import ibverbs as ibverbs
from . import measure as measure
from . import program as program
from . import shm as shm
from . import sim as sim
from . import verbs as verbs

__version__: str
source_digest: str

def libraries() -> list[tuple[str, str, bool, str]]: ...

class Cluster:
    @property
    def fabric(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def devices(self) -> list[verbs.Device]: ...
    def devices_of(self, node: int) -> list[verbs.Device]: ...
    @property
    def closed(self) -> bool: ...
    def kill(self, node: int) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = ...,
        error: BaseException | None = ...,
        trace: TracebackType | None = ...,
        /,
    ) -> None: ...
