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

def libraries() -> list[tuple[str, str, bool, str]]:
    """Return (name, Debian package, needed at the build, problem) of each system's libraries."""

class Cluster:
    """The nodes of a cluster that live in this process."""

    @property
    def fabric(self) -> str:
        """Name of the fabric: sim, shm or verbs."""

    @property
    def nodes(self) -> int:
        """Number of nodes of the whole cluster."""

    @property
    def devices(self) -> list[verbs.Device]:
        """The first device of each node of this process."""

    def devices_of(self, node: int) -> list[verbs.Device]:
        """All devices of a node of this process."""

    @property
    def closed(self) -> bool:
        """Whether `close` has been called."""

    def kill(self, node: int) -> None:
        """End a node, as by a power failure."""

    def close(self) -> None:
        """Free all objects. Arrays keep their memory; other objects then raise Unavailable."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = ...,
        error: BaseException | None = ...,
        trace: TracebackType | None = ...,
        /,
    ) -> None: ...
